#include "lowering/calls/norm_gradient_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lowering/fusion/pointwise_ops.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

c10::Stack call(const at::Tensor& gradient, const at::Tensor& x, const c10::IValue& weight, std::vector<bool> wanted) {
  const int64_t n = x.sizes().back();
  const auto [_, mean, rstd] = at::native_layer_norm(x, {n}, {}, {}, 1e-5);
  const c10::IValue mask = c10::List<bool>({wanted[0], wanted[1], wanted[2]});
  return {gradient, x, c10::List<int64_t>({n}), mean, rstd, weight, weight, mask};
}

// As exact as PyTorch's, undefined where that is, and of the same sizes.
void expect_computed(const c10::Stack& arguments) {
  c10::Stack ours = arguments;
  c10::Stack expected = arguments;
  ASSERT_TRUE(run_norm_gradient(ours));
  make_op("aten::native_layer_norm_backward").handle().callBoxed(expected);
  ASSERT_EQ(ours.size(), expected.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor& result = ours[i].toTensor();
    ASSERT_EQ(result.defined(), expected[i].toTensor().defined()) << i;
    if (result.defined()) {
      EXPECT_EQ(result.sizes(), expected[i].toTensor().sizes());
      EXPECT_TRUE(at::allclose(result, expected[i].toTensor(), 1e-4, 1e-5)) << i;
    }
  }
}

TEST(NormGradientKernel, IsThatOfLayerNorm) {
  EXPECT_EQ(is_norm_gradient(make_op("aten::native_layer_norm_backward")), has_functions());
  EXPECT_FALSE(is_norm_gradient(make_op("aten::native_layer_norm")));
}

TEST(NormGradientKernel, ComputesWhatIsWanted) {
  const at::Tensor x = at::randn({2, 7, 33});
  const at::Tensor gradient = at::randn({2, 7, 33});
  for (const c10::IValue& weight : {c10::IValue(at::randn({33})), c10::IValue()}) {
    const bool has_weight = weight.isTensor();
    expect_computed(call(gradient, x, weight, {true, has_weight, has_weight}));
    expect_computed(call(gradient, x, weight, {true, false, false}));
    expect_computed(call(gradient, x, weight, {false, has_weight, false}));
  }
}

TEST(NormGradientKernel, CallsPyTorchsForTheRest) {
  const at::Tensor x = at::randn({4, 16}, at::kDouble);
  const c10::Stack arguments = call(x, x, at::randn({16}, at::kDouble), {true, true, true});
  c10::Stack ours = arguments;
  c10::Stack expected = arguments;
  norm_gradient(ours);
  make_op("aten::native_layer_norm_backward").handle().callBoxed(expected);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(ours.at(i).toTensor().equal(expected.at(i).toTensor())) << i;
  }
}

TEST(NormGradientKernel, ComputesNothingElse) {
  const auto is_computed = [](const at::Tensor& gradient, const at::Tensor& x) {
    c10::Stack stack = call(gradient, x, at::randn({x.sizes().back()}, x.options()), {true, true, true});
    const size_t size = stack.size();
    const bool is_computed = run_norm_gradient(stack);
    EXPECT_TRUE(is_computed || stack.size() == size);
    return is_computed;
  };
  const at::Tensor x = at::randn({4, 16});
  EXPECT_TRUE(is_computed(x, x));
  EXPECT_FALSE(is_computed(x.to(at::kDouble), x.to(at::kDouble)));
  EXPECT_FALSE(is_computed(at::randn({16, 4}).t(), x));
  EXPECT_FALSE(is_computed(x, at::randn({16, 4}).t()));
  EXPECT_FALSE(is_computed(at::randn({4, 15}), at::randn({4, 15})));
  EXPECT_FALSE(is_computed(at::randn({1, 16385}), at::randn({1, 16385})));
  EXPECT_FALSE(is_computed(at::randn({0, 16}), at::randn({0, 16})));
  c10::Stack two_dims = call(x, x, at::randn({4, 16}), {true, true, true});
  two_dims[2] = c10::List<int64_t>({4, 16});
  EXPECT_FALSE(run_norm_gradient(two_dims));
}

} // namespace
} // namespace lazyplug
