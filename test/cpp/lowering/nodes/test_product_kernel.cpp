#include "lowering/nodes/product_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "lowering/nodes/resolve_kernel.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

class ProductKernelTest : public testing::Test {
 protected:
  // Of a product of such tensors.
  std::function<void(c10::Stack&)> kernel_of(const char* op, const std::vector<at::Tensor>& tensors) {
    const bool adds = std::string_view(op) == "aten::addmm";
    auto* node = graph_.create(c10::Symbol::fromQualString(op));
    for (const at::Tensor& tensor : tensors) {
      node->addInput(graph_.addInput())->setType(type_of(Geometry::of(*tensor.unsafeGetTensorImpl())));
    }
    for (size_t i = 0; adds && i < 2; ++i) {
      node->addInput(graph_.addInput());
    }
    const at::Tensor& a = tensors.end()[-2];
    const at::Tensor result = at::empty({a.size(0), tensors.back().size(1)}, a.options());
    node->output()->setType(type_of(Geometry::of(*result.unsafeGetTensorImpl())));
    graph_.insertNode(node);
    return product_kernel(*node, make_op(op), geometries_);
  }

  // Runs it, and compares with PyTorch's.
  void expect_same(const char* op, const std::vector<at::Tensor>& tensors, const std::vector<c10::IValue>& numbers) {
    const auto kernel = kernel_of(op, tensors);
    ASSERT_TRUE(kernel);
    c10::Stack expected(tensors.begin(), tensors.end());
    expected.insert(expected.end(), numbers.begin(), numbers.end());
    c10::Stack stack = expected;
    kernel(stack);
    make_op(op).handle().callBoxed(expected);
    ASSERT_EQ(stack.size(), 1);
    const at::Tensor& result = stack[0].toTensor();
    EXPECT_TRUE(at::equal(result.view(at::kByte), expected[0].toTensor().view(at::kByte)));
    EXPECT_EQ(result.strides(), expected[0].toTensor().strides());
  }

  torch::jit::Graph graph_;
  TypeGeometries geometries_;
  const at::Tensor a_ = at::randn({8, 24});
  const at::Tensor b_ = at::randn({16, 24}).t();
};

TEST_F(ProductKernelTest, Multiplies) {
  expect_same("aten::mm", {a_, b_}, {});
  expect_same("aten::mm", {a_.to(at::kDouble), b_.to(at::kDouble)}, {});
}

TEST_F(ProductKernelTest, MultipliesVectors) {
  const auto run = [&](const at::Tensor& a, const at::Tensor& x) -> std::optional<at::Tensor> {
    auto* node = graph_.create(c10::Symbol::fromQualString("aten::mv"));
    for (const at::Tensor& tensor : {a, x}) {
      node->addInput(graph_.addInput())->setType(type_of(Geometry::of(*tensor.unsafeGetTensorImpl())));
    }
    graph_.insertNode(node);
    const auto kernel = product_kernel(*node, make_op("aten::mv"), geometries_);
    if (!kernel) {
      return std::nullopt;
    }
    c10::Stack stack = {a, x};
    kernel(stack);
    return stack.size() == 1 ? std::optional(stack[0].toTensor()) : std::nullopt;
  };
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({24}, dtype);
    const at::Tensor parts = at::randn({30, 40}, dtype);
    for (const at::Tensor& a :
         {at::randn({16, 24}, dtype),
          at::randn({24, 16}, dtype).t(),
          parts.slice(1, 3, 27),
          parts.t().slice(1, 2, 26)}) {
      for (const at::Tensor& vector : {x, at::randn({24, 3}, dtype).select(1, 1)}) {
        const auto result = run(a, vector);
        ASSERT_TRUE(result);
        EXPECT_TRUE(result->equal(at::mv(a, vector)));
      }
    }
    EXPECT_FALSE(run(parts.slice(1, 0, 40, 2).slice(1, 0, 20), at::randn({20}, dtype))) << "PyTorch copies it";
    EXPECT_FALSE(run(at::randn({4, 24}, dtype), at::randn({1}, dtype).expand({24}))) << "BLAS would read one element";
  }
  EXPECT_FALSE(run(at::ones({4, 4}, at::kLong), at::ones({4}, at::kLong)));
  EXPECT_FALSE(run(at::randn({65, 64}), at::randn({64}))) << "oneDNN may round it";
}

TEST_F(ProductKernelTest, AddsWhatIsBroadcast) {
  for (const at::Tensor& bias :
       {at::randn({16}),
        at::randn({1}),
        at::randn({}),
        at::randn({8, 16}),
        at::randn({8, 1}),
        at::randn({1, 16}),
        at::randn({16, 8}).t(),
        at::randn({32}).slice(0, 0, 32, 2)}) {
    expect_same("aten::addmm", {bias, a_, b_}, {1, 1});
    expect_same("aten::addmm", {bias, a_, b_}, {1.0, -0.5});
  }
}

TEST_F(ProductKernelTest, LeavesOtherFactorsToPyTorch) {
  const at::Tensor nan = at::full({16}, NAN);
  expect_same("aten::addmm", {nan, a_, b_}, {0, 1}); // is not even read
  expect_same("aten::addmm", {at::randn({16}), a_, b_}, {2.5, 1});
  expect_same("aten::addmm", {at::randn({16}), a_, b_}, {1, true});
}

TEST_F(ProductKernelTest, LeavesOtherLayoutsThanThePromisedToPyTorch) {
  const auto kernel = kernel_of("aten::mm", {a_, b_});
  const at::Tensor other = at::randn({24, 8}).t();
  c10::Stack stack = {other, b_};
  kernel(stack);
  EXPECT_TRUE(at::equal(stack[0].toTensor(), at::mm(other, b_)));
}

TEST_F(ProductKernelTest, IsOnlyForSmallProductsOfReals) {
  const at::Tensor wide = at::randn({24, 4096});
  EXPECT_FALSE(kernel_of("aten::mm", {a_.to(at::kDouble), wide.to(at::kDouble)}))
      << "PyTorch's threads share the result";
  EXPECT_FALSE(kernel_of("aten::mm", {a_.to(at::kBFloat16), b_.to(at::kBFloat16)}));
  EXPECT_FALSE(kernel_of("aten::addmm", {at::randn({16}).to(at::kDouble), a_, b_}));
  EXPECT_FALSE(product_kernel(*graph_.create(c10::aten::relu), make_op("aten::relu"), geometries_));
}

// oneDNN's kernels round, where the processor has instructions for it.
TEST_F(ProductKernelTest, DoesAsTheProgramAllows) {
  const auto [backend, op] = std::pair(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  const at::Tensor a = at::randn({32, 64});
  const at::Tensor b = at::randn({64, 64});
  at::globalContext().setFloat32Precision(backend, op, at::Float32Precision::BF16);
  expect_same("aten::mm", {a, b}, {});
  at::globalContext().setFloat32Precision(backend, op, at::Float32Precision::NONE);
  expect_same("aten::mm", {a, b}, {});
}

} // namespace
} // namespace lazyplug
