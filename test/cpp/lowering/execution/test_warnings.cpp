#include "lowering/execution/warnings.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

std::vector<std::string> texts(std::vector<c10::Warning> warnings) {
  std::vector<std::string> result;
  for (const c10::Warning& warning : warnings) {
    result.push_back(warning.msg());
  }
  return result;
}

TEST(WarningsTest, AreCollectedInOrderWithinTheScope) {
  WarningCollector outer;
  {
    WarningCollector inner;
    TORCH_WARN("first");
    TORCH_WARN("second");
    EXPECT_EQ(texts(inner.take()), (std::vector<std::string>{"first", "second"}));
  }
  TORCH_WARN("third");
  EXPECT_EQ(texts(outer.take()), std::vector<std::string>{"third"});
}

TEST(WarningsTest, ThoseThatComeOnceAreNotRepeated) {
  const auto run = [] {
    WarningCollector collector;
    TORCH_WARN("each time");
    TORCH_WARN_ONCE("once");
    return collector.take();
  };
  const auto first = run();
  EXPECT_EQ(texts(not_repeated(first, run())), std::vector<std::string>{"once"});
}

TEST(WarningsTest, ThoseThatWereShownAreMuted) {
  WarningCollector user;
  WarningCollector* collected = &user;
  {
    WarningCollector inference;
    TORCH_WARN("shown");
    const auto warnings = inference.take();
    const c10::WarningUtils::WarningHandlerGuard back(collected);
    show_warnings(warnings);
  }
  {
    const ShownWarningsMuted muted;
    TORCH_WARN("shown");
    TORCH_WARN("not shown before");
  }
  EXPECT_EQ(texts(user.take()), (std::vector<std::string>{"shown", "not shown before"}));
}

} // namespace
} // namespace lazyplug
