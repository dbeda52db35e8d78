#include "common/config.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

namespace lazyplug {
namespace {

// Sets an environment variable for the life of the scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    setenv(name, value, /*overwrite=*/1);
  }
  ~ScopedEnv() {
    unsetenv(name_);
  }

 private:
  const char* name_;
};

template <typename Call>
std::string value_error(Call call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Config, Defaults) {
  Config fresh;
  EXPECT_EQ(fresh.device_count.get(), 1);
  EXPECT_EQ(fresh.cache_size.get(), 1024);
  EXPECT_EQ(fresh.signature_cache_size.get(), 65536);
  EXPECT_EQ(fresh.device_data_cache_size.get(), 1024);
  EXPECT_EQ(fresh.force_fallback.get(), "");
  EXPECT_EQ(fresh.fallback.get(), "warn");
  EXPECT_FALSE(fresh.debug.get());
  EXPECT_FALSE(fresh.launch_blocking.get());
  EXPECT_EQ(fresh.small_call.get(), 8192);
  EXPECT_EQ(fresh.min_cut_nodes.get(), 300);
  EXPECT_EQ(fresh.max_pending_nodes.get(), 3000);
  EXPECT_EQ(fresh.chunk_nodes.get(), 0);
  EXPECT_EQ(fresh.max_pending_bytes.get(), 1 << 30);
  EXPECT_EQ(fresh.log_level.get(), "warning");
}

TEST(Config, VerifiesGraphsInDebugBuildsOnly) {
#ifdef NDEBUG
  EXPECT_FALSE(Config().verify_ir.get());
#else
  EXPECT_TRUE(Config().verify_ir.get());
#endif
}

TEST(Config, EveryFlagIsListedOnceWithDocAndEnvironment) {
  Config fresh;
  std::set<std::string> names;
  for (const FlagBase* flag : fresh.flags()) {
    EXPECT_TRUE(names.insert(flag->name()).second) << flag->name();
    EXPECT_FALSE(flag->doc().empty()) << flag->name();
    std::string variable = "LAZYPLUG_" + flag->name();
    std::transform(variable.begin(), variable.end(), variable.begin(), ::toupper);
    EXPECT_EQ(flag->env().front(), variable);
  }
  EXPECT_GE(names.size(), 16);
}

TEST(Config, ReadsTheEnvironment) {
  ScopedEnv size("LAZYPLUG_CACHE_SIZE", "7");
  ScopedEnv debug("LAZYPLUG_DEBUG", "On");
  ScopedEnv empty("LAZYPLUG_DEVICE_COUNT", "");
  Config fresh;
  EXPECT_EQ(fresh.cache_size.get(), 7);
  EXPECT_TRUE(fresh.debug.get());
  EXPECT_EQ(fresh.device_count.get(), 1);
}

TEST(Config, FirstEnvironmentVariableWins) {
  ScopedEnv theirs("LTC_FORCE_FALLBACK", "aten::add");
  EXPECT_EQ(Config().force_fallback.get(), "aten::add");
  ScopedEnv ours("LAZYPLUG_FORCE_FALLBACK", "aten::mul");
  EXPECT_EQ(Config().force_fallback.get(), "aten::mul");
}

TEST(Config, InvalidEnvironmentNamesTheVariable) {
  ScopedEnv size("LAZYPLUG_CACHE_SIZE", "many");
  const std::string message = value_error([] { Config(); });
  EXPECT_TRUE(contains(message, "LAZYPLUG_CACHE_SIZE")) << message;
  EXPECT_TRUE(contains(message, "'many'")) << message;
}

TEST(Config, OutOfRangeEnvironmentNamesTheVariable) {
  ScopedEnv count("LAZYPLUG_DEVICE_COUNT", "128");
  const std::string message = value_error([] { Config(); });
  EXPECT_TRUE(contains(message, "LAZYPLUG_DEVICE_COUNT is '128' but must be between 1 and 127")) << message;
}

TEST(Config, FlagByName) {
  Config fresh;
  EXPECT_EQ(&fresh.flag("fallback"), &fresh.fallback);
  EXPECT_TRUE(contains(value_error([&] { fresh.flag("fallbak"); }), "fallbak"));
}

TEST(Config, IsOneInstance) {
  EXPECT_EQ(&config(), &config());
}

TEST(Flag, TextRoundTrips) {
  Config fresh;
  for (FlagBase* flag : fresh.flags()) {
    const std::string text = flag->get_string();
    flag->set_string(text);
    EXPECT_EQ(flag->get_string(), text);
  }
}

TEST(Flag, RefusedValueLeavesTheFlagAsItWas) {
  Config fresh;
  EXPECT_EQ(
      value_error([&] { fresh.fallback.set("loud"); }),
      "fallback is 'loud' but must be one of silent, warn, error");
  EXPECT_EQ(fresh.fallback.get(), "warn");
  EXPECT_TRUE(contains(value_error([&] { fresh.cache_size.set(0); }), "at least 1"));
  EXPECT_EQ(fresh.cache_size.get(), 1024);
}

TEST(Flag, RefusesTextThatIsNotOfItsType) {
  Config fresh;
  for (const char* text : {"", "1.5", "12x", "99999999999999999999"}) {
    EXPECT_TRUE(contains(value_error([&] { fresh.cache_size.set_string(text); }), "64-bit integer")) << text;
  }
  EXPECT_TRUE(contains(value_error([&] { fresh.debug.set_string("maybe"); }), "boolean"));
}

TEST(Flag, SpellingsOfBooleans) {
  Flag<bool> flag({"flag", "", {}}, false);
  for (const char* text : {"1", "true", "ON", "Yes"}) {
    flag.set(false);
    flag.set_string(text);
    EXPECT_TRUE(flag.get()) << text;
  }
  for (const char* text : {"0", "false", "OFF", "No"}) {
    flag.set(true);
    flag.set_string(text);
    EXPECT_FALSE(flag.get()) << text;
  }
}

TEST(Flag, VersionMovesWithEverySet) {
  Flag<std::string> flag({"flag", "", {}}, "a");
  const uint64_t before = flag.version();
  flag.set("b");
  EXPECT_EQ(flag.version(), before + 1);
  flag.set_string("c");
  EXPECT_EQ(flag.version(), before + 2);
}

TEST(Flag, RefusedValueDoesNotMoveTheVersion) {
  Config fresh;
  const uint64_t before = fresh.cache_size.version();
  value_error([&] { fresh.cache_size.set(-1); });
  EXPECT_EQ(fresh.cache_size.version(), before);
}

TEST(Flag, ReadersSeeWholeStringsWhileAnotherThreadWrites) {
  const std::string a(100, 'a');
  const std::string b(200, 'b');
  Flag<std::string> flag({"flag", "", {}}, a);
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i) {
      flag.set(i % 2 == 0 ? b : a);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const std::string seen = flag.get();
    ASSERT_TRUE(seen == a || seen == b);
  }
  writer.join();
  EXPECT_EQ(flag.get(), a);
}

} // namespace
} // namespace lazyplug
