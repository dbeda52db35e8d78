#include "lowering/sum_kernel.h"

#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

class SumKernelTest : public NodeTest {
 protected:
  SumKernelTest() : NodeTest(sum_kernel) {}
};

const c10::IValue kNone;

TEST_F(SumKernelTest, OfAll) {
  for (const at::Tensor& tensor : {at::randn({7}), at::randn({3, 5, 8}), at::randn({40, 50}).to(at::kDouble)}) {
    expect_same("aten::sum", "", tensor, {kNone});
    expect_same("aten::mean", "", tensor, {kNone});
    expect_same("aten::sum", "dim_IntList", tensor, {kNone, true, kNone});
    expect_same("aten::mean", "dim", tensor, {std::vector<int64_t>(), false, kNone});
  }
}

TEST_F(SumKernelTest, OfDimensionsAtEitherEnd) {
  const at::Tensor tensor = at::randn({3, 4, 5, 6});
  for (const bool keepdim : {true, false}) {
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {-1}, {0, 1}, {2, -1}, {0, 1, 2}, {1, 2, 3}}) {
      expect_same("aten::sum", "dim_IntList", tensor, {dims, keepdim, kNone});
      expect_same("aten::mean", "dim", tensor, {dims, keepdim, kNone});
    }
  }
  expect_same("aten::sum", "dim_IntList", at::randn({3, 1, 5}), {std::vector<int64_t>{0, 2}, false, kNone});
}

TEST_F(SumKernelTest, LeavesTheRestToPyTorch) {
  const std::vector<int64_t> last = {-1};
  EXPECT_FALSE(kernel_of("aten::sum", "dim_IntList", at::randn({3, 4, 5}), {std::vector<int64_t>{1}, false, kNone}));
  EXPECT_FALSE(kernel_of("aten::sum", "dim_IntList", at::randn({3, 4, 5}), {std::vector<int64_t>{0, 2}, false, kNone}));
  EXPECT_FALSE(kernel_of("aten::sum", "dim_IntList", at::randn({3, 1}), {last, false, kNone})) << "adds nothing up";
  EXPECT_FALSE(kernel_of("aten::sum", "dim_IntList", at::randn({}), {last, false, kNone})) << "nor does that";
  EXPECT_FALSE(kernel_of("aten::sum", "dim_IntList", at::randn({3, 4}).t(), {last, false, kNone}));
  EXPECT_FALSE(kernel_of("aten::sum", "", at::randn({3, 0}), {kNone}));
  EXPECT_FALSE(kernel_of("aten::sum", "", at::ones({3, 4}, at::kLong), {kNone}));
  EXPECT_FALSE(kernel_of("aten::sum", "", at::randn({3, 4}), {static_cast<int64_t>(at::kDouble)}));
  EXPECT_FALSE(kernel_of("aten::sum", "", at::randn({200, 200}), {kNone})) << "threads share it";
  EXPECT_FALSE(kernel_of("aten::nansum", "", at::randn({3, 4}), {kNone, false, kNone}));
}

TEST_F(SumKernelTest, LeavesOtherLayoutsThanThePromisedToPyTorch) {
  const at::Tensor tensor = at::randn({3, 4});
  const auto kernel = kernel_of("aten::sum", "dim_IntList", tensor, {std::vector<int64_t>{1}, false, kNone});
  stack_[0] = tensor.t().contiguous().t();
  kernel(stack_);
  EXPECT_TRUE(at::allclose(stack_[0].toTensor(), tensor.sum(1)));
}

} // namespace
} // namespace lazyplug
