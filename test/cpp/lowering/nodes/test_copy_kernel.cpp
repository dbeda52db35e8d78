#include "lowering/nodes/copy_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

class CopyKernelTest : public testing::Test {
 protected:
  std::function<void(c10::Stack&)> kernel_of(const at::Tensor& to, const at::Tensor& from) {
    auto* node = graph_.create(c10::Symbol::fromQualString("aten::copy_"));
    for (const at::Tensor& tensor : {to, from}) {
      node->addInput(graph_.addInput())->setType(type_of(geometry_of(tensor)));
    }
    node->addInput(graph_.insertConstant(false));
    node->output()->setType(type_of(geometry_of(to)));
    graph_.insertNode(node);
    return copy_kernel(*node, make_op("aten::copy_", ""), geometries_);
  }

  // Of views at these places of larger tensors, so that what is beside them is seen, too.
  void expect_copied(
      const at::Tensor& base,
      const std::function<at::Tensor(const at::Tensor&)>& view,
      const at::Tensor& from) {
    const at::Tensor ours = base.clone();
    const at::Tensor expected = base.clone();
    const auto kernel = kernel_of(view(ours), from);
    ASSERT_TRUE(kernel) << from.sizes();
    c10::Stack stack{view(ours), from, false};
    kernel(stack);
    ASSERT_EQ(stack.size(), 1);
    EXPECT_TRUE(stack[0].toTensor().is_alias_of(ours));
    view(expected).copy_(from);
    EXPECT_TRUE(ours.equal(expected)) << from.sizes();
  }

 private:
  torch::jit::Graph graph_;
  TypeGeometries geometries_;
};

TEST_F(CopyKernelTest, HoweverTheTensorsLie) {
  const at::Tensor numbers = at::arange(1, 121);
  for (const auto dtype : {at::kByte, at::kHalf, at::kFloat, at::kLong, at::kComplexDouble}) {
    const at::Tensor base = at::zeros({6, 5, 4}, dtype);
    const at::Tensor all = numbers.to(dtype).view({4, 5, 6});
    expect_copied(base, [](const at::Tensor& x) { return x; }, all.permute({2, 1, 0}));
    expect_copied(base, [](const at::Tensor& x) { return x.permute({2, 1, 0}); }, all);
    expect_copied(base, [](const at::Tensor& x) { return x.select(1, 2); }, all.select(1, 0).t());
    expect_copied(
        base,
        [](const at::Tensor& x) { return x.slice(0, 1, 6, 2); },
        all.flatten().slice(0, 7, 67).view({3, 5, 4}));
    expect_copied(base, [](const at::Tensor& x) { return x.select(2, 3).select(0, 1); }, all[0][0].slice(0, 0, 5));
    expect_copied(base, [](const at::Tensor& x) { return x[1][2][3]; }, all[3][4][5]);
    expect_copied(base, [](const at::Tensor& x) { return x[1]; }, all[3][4][5]);       // the same for all
    expect_copied(base, [](const at::Tensor& x) { return x; }, all[0].slice(1, 0, 1)); // or for some
    expect_copied(base, [](const at::Tensor& x) { return x.diagonal(0, 0, 1); }, all[0].slice(0, 0, 4).slice(1, 0, 5));
  }
}

TEST_F(CopyKernelTest, AskPyTorchForOthers) {
  const at::Tensor floats = at::zeros({3, 4});
  EXPECT_FALSE(kernel_of(floats, at::zeros({3, 4}, at::kDouble)));
  EXPECT_FALSE(kernel_of(at::zeros({0, 4}), at::zeros({0, 4})));
  EXPECT_FALSE(kernel_of(at::zeros({64, 65}), at::zeros({64, 65})));
  EXPECT_FALSE(kernel_of(at::zeros({4}).unfold(0, 2, 1), at::ones({3, 2}))); // elements have one place
  EXPECT_FALSE(kernel_of(at::zeros({1}).expand({3}), at::ones({3})));
  for (const at::Tensor& other : {at::ones({4, 3}, at::kDouble).t(), at::ones({4, 3}).t()}) { // not as the types say
    const auto kernel = kernel_of(floats, at::zeros({3, 4}));
    ASSERT_TRUE(kernel);
    c10::Stack stack{floats.zero_(), other, false};
    kernel(stack);
    EXPECT_TRUE(floats.equal(at::ones({3, 4})));
  }
  const at::Tensor complex = at::zeros({3}, at::kComplexFloat);
  const at::Tensor other = at::full({3}, c10::complex<float>(1, 2), at::kComplexFloat).conj();
  const auto kernel = kernel_of(complex, complex);
  ASSERT_TRUE(kernel);
  c10::Stack stack{complex, other, false};
  kernel(stack);
  EXPECT_TRUE(complex.equal(other.resolve_conj()));
}

} // namespace
} // namespace lazyplug
