#include "lowering/extreme_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

class ExtremeKernelTest : public testing::Test {
 protected:
  std::function<void(c10::Stack&)>
  kernel_of(const char* op, const char* overload, const at::Tensor& tensor, const c10::Stack& constants) {
    const auto type = [](const at::Tensor& tensor) { return type_of(Geometry::of(*tensor.unsafeGetTensorImpl())); };
    const OpInfo& info = make_op(op, overload);
    stack_ = {tensor};
    stack_.insert(stack_.end(), constants.begin(), constants.end());
    expected_ = stack_;
    info.handle().callBoxed(expected_);
    auto* node = graph_.create(c10::Symbol::fromQualString(op), expected_.size());
    node->addInput(graph_.addInput())->setType(type(tensor));
    for (const c10::IValue& constant : constants) {
      node->addInput(graph_.insertConstant(constant));
    }
    for (size_t i = 0; i < expected_.size(); ++i) {
      node->output(i)->setType(type(expected_[i].toTensor()));
    }
    graph_.insertNode(node);
    return extreme_kernel(*node, info, geometries_);
  }

  void expect_same(const char* op, const char* overload, const at::Tensor& tensor, const c10::Stack& constants) {
    const auto kernel = kernel_of(op, overload, tensor, constants);
    ASSERT_TRUE(kernel) << op << tensor.sizes();
    kernel(stack_);
    ASSERT_EQ(stack_.size(), expected_.size());
    for (size_t i = 0; i < stack_.size(); ++i) {
      const at::Tensor& result = stack_[i].toTensor();
      const at::Tensor& expected = expected_[i].toTensor();
      EXPECT_TRUE(at::allclose(result, expected, 0, 0, /*equal_nan=*/true)) << op << tensor.sizes();
      EXPECT_EQ(result.dtype(), expected.dtype());
      EXPECT_EQ(result.sizes(), expected.sizes());
      EXPECT_EQ(result.strides(), expected.strides());
    }
  }

  torch::jit::Graph graph_;
  TypeGeometries geometries_;
  c10::Stack stack_;
  c10::Stack expected_;
};

const c10::IValue kNone;

// Few values, so that some are equal.
at::Tensor repetitive(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randint(-3, 3, sizes, at::kFloat).to(dtype);
}

TEST_F(ExtremeKernelTest, FindsTheFirstOfEqualOnes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong}) {
    const at::Tensor tensor = repetitive({3, 4, 5}, dtype);
    for (const char* op : {"aten::argmax", "aten::argmin"}) {
      expect_same(op, "", tensor, {kNone, false});
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
  EXPECT_FALSE(kernel_of("aten::max", "", at::randn({3, 4}), {}));
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
