#include "lowering/nodes/sum_kernel.h"

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

constexpr const char* kNorm = "aten::linalg_vector_norm";

TEST_F(SumKernelTest, OfSquares) {
  const std::vector<int64_t> last = {-1};
  for (const int64_t size : {2, 7, 8, 9, 33, 500}) {
    expect_same(kNorm, "", at::randn({size}), {2, kNone, false, kNone});
    expect_same(kNorm, "", at::randn({3, size}), {2.0, last, true, kNone});
    expect_same(kNorm, "", at::randn({3, size}), {2.0, kNone, true, kNone});
  }
  const auto is_made = [&](const at::Tensor& tensor, const c10::IValue& dims) {
    return static_cast<bool>(kernel_of(kNorm, "", tensor, {2, dims, false, kNone}));
  };
  EXPECT_FALSE(is_made(at::randn({3, 4}), std::vector<int64_t>{0}));
  EXPECT_FALSE(is_made(at::randn({4}, at::kDouble), kNone));
  EXPECT_FALSE(is_made(at::randn({1}), kNone));
}

TEST_F(SumKernelTest, LeavesOtherNormsToPyTorch) {
  const at::Tensor tensor = at::randn({33});
  for (const c10::IValue& order : {c10::IValue(1), c10::IValue(0.5), c10::IValue(3)}) {
    const auto kernel = kernel_of(kNorm, "", tensor, {order, kNone, false, kNone});
    if (kernel) { // the order is a number of the graph
      kernel(stack_);
      EXPECT_TRUE(stack_[0].toTensor().equal(at::linalg_vector_norm(tensor, order.toScalar())));
    }
  }
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
