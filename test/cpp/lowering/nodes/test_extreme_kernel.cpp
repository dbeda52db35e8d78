#include "lowering/nodes/extreme_kernel.h"

#include <limits>

#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

class ExtremeKernelTest : public NodeTest {
 protected:
  ExtremeKernelTest() : NodeTest(extreme_kernel) {}
};

const c10::IValue kNoDim;

// Few values, so that some are equal.
at::Tensor repetitive(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randint(-3, 3, sizes, at::kFloat).to(dtype);
}

TEST_F(ExtremeKernelTest, FindsTheFirstOfEqualOnes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong}) {
    const at::Tensor tensor = repetitive({3, 4, 5}, dtype);
    for (const char* op : {"aten::argmax", "aten::argmin"}) {
      expect_same(op, "", tensor, {kNoDim, false});
      expect_same(op, "", repetitive({}, dtype), {-1, true});
      for (int64_t dim = -3; dim < 3; ++dim) {
        expect_same(op, "", tensor, {dim, dim % 2 == 0});
      }
    }
    for (const char* op : {"aten::max", "aten::min"}) {
      for (int64_t dim = -3; dim < 3; ++dim) {
        expect_same(op, "dim", tensor, {dim, dim % 2 == 0});
      }
    }
  }
}

TEST_F(ExtremeKernelTest, FindsTheFirstNan) {
  at::Tensor tensor = at::randn({4, 8});
  tensor[0][3] = tensor[0][5] = tensor[1][0] = tensor[2][7] = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"aten::max", "aten::min"}) {
    expect_same(op, "dim", tensor, {1, false});
    expect_same(op, "dim", tensor, {0, false});
  }
  expect_same("aten::argmax", "", tensor, {1, false});
  expect_same("aten::argmin", "", tensor, {0, false});
  expect_same("aten::argmax", "", at::full({3}, -std::numeric_limits<float>::infinity()), {0, false});
}

TEST_F(ExtremeKernelTest, FindsValuesAlone) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong}) {
    for (const int64_t size : {1, 5, 16, 37}) {
      const at::Tensor tensor = repetitive({3, size}, dtype) + 10;
      for (const char* op : {"aten::max", "aten::min"}) {
        expect_same(op, "", tensor, {});
        expect_same(op, "", tensor[0][0], {});
      }
      for (const char* op : {"aten::amax", "aten::amin"}) {
        expect_same(op, "", tensor, {std::vector<int64_t>{}, false});
        expect_same(op, "", tensor, {std::vector<int64_t>{-1}, true});
        expect_same(op, "", tensor[0], {std::vector<int64_t>{0}, false});
      }
    }
  }
  EXPECT_FALSE(kernel_of("aten::amax", "", at::randn({3, 4}), {std::vector<int64_t>{0}, false})) << "columns";
  EXPECT_FALSE(kernel_of("aten::amax", "", at::randn({3, 4}), {std::vector<int64_t>{0, 1}, false})) << "several";
}

TEST_F(ExtremeKernelTest, LeavesZerosOfBothSignsToPyTorch) {
  const at::Tensor zeros = at::zeros({40});
  zeros[17] = -0.0F;
  for (const at::Tensor& each : {zeros, zeros.slice(0, 0, 16), zeros.slice(0, 17, 18), zeros.flip(0)}) {
    expect_same("aten::max", "", each, {});
    expect_same("aten::min", "", each, {});
  }
}

TEST_F(ExtremeKernelTest, FindsNansAmongValuesAlone) {
  for (const int64_t place : {0, 7, 16, 36}) {
    const at::Tensor tensor = at::randn({37});
    tensor[place] = std::numeric_limits<float>::quiet_NaN();
    expect_same("aten::max", "", tensor, {});
    expect_same("aten::min", "", tensor, {});
  }
  // With PyTorch's sign.
  const at::Tensor negative = -at::full({1, 1}, std::numeric_limits<float>::quiet_NaN());
  expect_same("aten::amin", "", negative, {std::vector<int64_t>{1}, false});
  EXPECT_TRUE(at::equal(stack_[0].toTensor().view(at::kInt), negative.amin(1).view(at::kInt)));
}

TEST_F(ExtremeKernelTest, TestsBooleans) {
  const at::Tensor tensor = at::ones({4, 6}, at::kBool);
  tensor[1][5] = false;
  tensor[2].fill_(false);
  for (const at::Tensor& each : {tensor, tensor[0], tensor[2]}) {
    for (const char* op : {"aten::all", "aten::any"}) {
      expect_same(op, "", each, {});
      expect_same(op, "dim", each, {-1, true});
    }
    expect_same("aten::_is_all_true", "", each, {});
    expect_same("aten::_is_any_true", "", each, {});
  }
}

TEST_F(ExtremeKernelTest, LeavesTheRestToPyTorch) {
  EXPECT_FALSE(kernel_of("aten::max", "", at::randn({3, 4}).t(), {}));
  EXPECT_FALSE(kernel_of("aten::argmax", "", at::randn({3, 4}).t(), {0, false}));
  EXPECT_FALSE(kernel_of("aten::argmax", "", at::randn({3, 4}).to(at::kHalf), {0, false}));
  EXPECT_FALSE(kernel_of("aten::argmax", "", at::randn({at::internal::GRAIN_SIZE}), {0, false}));
  EXPECT_FALSE(kernel_of("aten::all", "dim", at::ones({3, 4}, at::kBool), {0, false}));
  EXPECT_FALSE(kernel_of("aten::all", "", at::randn({3, 4}), {}));
}

TEST_F(ExtremeKernelTest, CallsPyTorchForATensorThatLiesOtherwise) {
  const auto kernel = kernel_of("aten::argmax", "", at::randn({3, 4}), {1, false});
  const at::Tensor other = at::randn({4, 3}).t();
  c10::Stack stack = {other, 1, false};
  kernel(stack);
  EXPECT_TRUE(at::equal(stack.at(0).toTensor(), other.argmax(1)));
}

} // namespace
} // namespace lazyplug
