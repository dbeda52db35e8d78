#include "lowering/calls/small_rows.h"

#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

using SmallRowsTest = SmallCallsTest;

TEST_F(SmallRowsTest, ComputesWhatGraphsDo) {
  const auto dtype = static_cast<int64_t>(at::kFloat);
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{37}, {3, 37}, {2, 1, 40}, {1, 64}, {50, 8}}) {
    const at::Tensor x = at::randn(sizes) * 5;
    const at::Tensor gradient = at::randn(sizes);
    for (const char* op : {"aten::_softmax", "aten::_log_softmax"}) {
      expect_same(op, {x, -1, false});
      expect_same(op, {x, x.dim() - 1, false});
    }
    for (const char* op : {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"}) {
      expect_same(op, {gradient, x.softmax(-1), -1, dtype});
    }
  }
}

TEST_F(SmallRowsTest, LeavesTheRest) {
  expect_none("aten::_softmax", {x_, 0, false}); // of columns
  expect_none("aten::_softmax", {x_, 2, false}); // there is no such dimension
  expect_none("aten::_softmax", {x_.t(), 0, false});
  expect_none("aten::_softmax", {x_.to(at::kDouble), 1, false});
  expect_none("aten::_softmax", {at::randn({}), 0, false});
  expect_none("aten::_softmax", {at::randn({0, 37}), 1, false});
  expect_none("aten::_softmax", {at::randn({100, 100}), 1, false}); // not small
  expect_none("aten::_softmax_backward_data", {x_, y_[0], 1, static_cast<int64_t>(at::kFloat)});
  EXPECT_EQ(make_small_rows(op_of("aten::native_layer_norm")), nullptr);
  EXPECT_EQ(make_small_rows(op_of("aten::gelu")), nullptr);
}

} // namespace
} // namespace lazyplug
