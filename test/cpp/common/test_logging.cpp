#include "common/logging.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/config.h"

namespace lazyplug {
namespace {

// Restores the level that the test changed.
class Logging : public testing::Test {
 protected:
  void TearDown() override {
    config().log_level.set(level_);
  }

 private:
  const std::string level_ = config().log_level.get();
};

template <typename Call>
std::string written_by(Call call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

TEST_F(Logging, WritesOneLineWithItsLevel) {
  config().log_level.set("info");
  EXPECT_EQ(written_by([] { log_info("compiled ", 3, " graphs"); }), "[torch_lazyplug info] compiled 3 graphs\n");
}

TEST_F(Logging, LevelIsAThreshold) {
  config().log_level.set("warning");
  EXPECT_EQ(written_by([] { log_debug("quiet"); }), "");
  EXPECT_EQ(written_by([] { log_info("quiet"); }), "");
  EXPECT_NE(written_by([] { log_warning("loud"); }), "");
  EXPECT_NE(written_by([] { log_error("loud"); }), "");
}

TEST_F(Logging, OffSilencesErrors) {
  config().log_level.set("off");
  EXPECT_EQ(written_by([] { log_error("quiet"); }), "");
}

TEST_F(Logging, EveryThreadFollowsTheFlag) {
  config().log_level.set("error");
  bool before = true;
  bool after = false;
  std::thread([&] {
    before = log_enabled(LogLevel::kDebug);
    config().log_level.set("debug");
    after = log_enabled(LogLevel::kDebug);
  }).join();
  EXPECT_FALSE(before);
  EXPECT_TRUE(after);
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
}

} // namespace
} // namespace lazyplug
