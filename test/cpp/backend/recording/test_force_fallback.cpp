#include "backend/recording/force_fallback.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class ForceFallbackTest : public BackendTest {
 protected:
  static bool forced(const std::string& flag, const char* name, const char* overload) {
    const ScopedFlag<std::string> scope(config().force_fallback, flag);
    return is_fallback_forced(op_info(name, overload));
  }
};

TEST_F(ForceFallbackTest, NothingIsForcedByDefault) {
  EXPECT_FALSE(forced("", "aten::add", "Tensor"));
  EXPECT_FALSE(forced(" , ", "aten::add", "Tensor"));
}

TEST_F(ForceFallbackTest, NamesWithAndWithoutOverload) {
  EXPECT_TRUE(forced("aten::add.Tensor", "aten::add", "Tensor"));
  EXPECT_FALSE(forced("aten::add.Tensor", "aten::add", "out"));
  EXPECT_TRUE(forced("aten::add", "aten::add", "Tensor"));
  EXPECT_TRUE(forced("aten::add", "aten::add", "out"));
  EXPECT_FALSE(forced("aten::add", "aten::add_", "Tensor"));
}

TEST_F(ForceFallbackTest, ListsGlobsAndAll) {
  EXPECT_TRUE(forced("aten::mul, aten::add ", "aten::add", "Tensor"));
  EXPECT_TRUE(forced("aten::add*", "aten::addmm", ""));
  EXPECT_FALSE(forced("aten::add*", "aten::mul", "Tensor"));
  EXPECT_TRUE(forced("all", "aten::mul", "Tensor"));
}

TEST_F(ForceFallbackTest, UnknownNamesAreWarnedAbout) {
  Warnings warnings;
  EXPECT_FALSE(forced("aten::addd", "aten::add", "Tensor"));
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_TRUE(contains(warnings.messages[0], "'aten::addd' selects nothing: no operator has that name"));
}

TEST_F(ForceFallbackTest, OpsThatNeverReachTheDeviceAreWarnedAboutAtOnce) {
  Warnings warnings;
  const ScopedFlag<std::string> force(config().force_fallback, "aten::linear,aten::conv*");
  read_forced_ops();
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_TRUE(contains(warnings.messages[0], "'aten::linear' selects nothing: it is made of other operators"));
}

TEST_F(ForceFallbackTest, ForcedOpsRunOnTheCpuWithoutAWarningOrRefusal) {
  const ScopedFlag<std::string> refuse(config().fallback, "error");
  const ScopedFlag<std::string> force(config().force_fallback, "aten::add");
  Warnings warnings;
  const at::Tensor x = to_lazy(iota({3}));
  const at::Tensor y = (x + x) * 2;
  EXPECT_EQ(count("aten::add"), 1);
  EXPECT_EQ(count("FallbackTotal"), 1);
  EXPECT_EQ(count("NodesRecorded"), 1);
  expect_equal(y, iota({3}) * 4);
  EXPECT_TRUE(warnings.messages.empty());
}

} // namespace
} // namespace lazyplug
