#include "lowering/calls/small_calls.h"

#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

TEST_F(SmallCallsTest, NeedsToKnowWhereTensorsAre) {
  const auto nowhere = [](const c10::TensorImpl&, bool) -> void* { return nullptr; };
  const Arguments arguments{x_, y_};
  EXPECT_FALSE(make_small_calls(op_of("aten::mul.Tensor"))->run(arguments, nowhere).defined());
}

TEST_F(SmallCallsTest, IsOffWithoutFusion) {
  {
    const ScopedFlag<int64_t> off(config().fusion, 0);
    expect_none("aten::neg", {x_});
  }
  expect_same("aten::neg", {x_});
}

} // namespace
} // namespace lazyplug
