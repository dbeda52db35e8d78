#include <ATen/ops/linear.h>
#include <ATen/ops/linear_backward.h>

#include "test/cpp/backend/expect_same.h"
#include "test/cpp/backend/native/native_test.h"

namespace lazyplug {
namespace {

// What autograd makes of it is tested in Python: autograd needs an accelerator.
class NativeLinear : public NativeTest {
 protected:
  const at::Tensor x = at::randn({2, 4, 3});
  const at::Tensor weight = at::randn({5, 3});
  const at::Tensor bias = at::randn({5});
};

TEST_F(NativeLinear, IsTheCpus) {
  expect_same(at::linear(to_lazy(x), to_lazy(weight), to_lazy(bias)), at::linear(x, weight, bias));
  expect_same(at::linear(to_lazy(x[0]), to_lazy(weight)), at::linear(x[0], weight));
}

TEST_F(NativeLinear, GradientsOfSequences) {
  const at::Tensor grad = at::randn({2, 4, 5});
  const at::Tensor rows = grad.view({8, 5});
  for (int i = 0; i < 3; ++i) { // from the second time on it is predicted
    const auto [input, of_weight, of_bias] =
        at::linear_backward(to_lazy(x), to_lazy(grad), to_lazy(weight), {true, true, true});
    expect_same(input, at::mm(rows, weight).view({2, 4, 3}));
    expect_same(of_weight, at::mm(rows.t(), x.view({8, 3})));
    expect_same(of_bias, rows.sum(0));
  }
}

TEST_F(NativeLinear, OnlyGradientsThatAreAskedFor) {
  const at::Tensor grad = at::randn({4, 5});
  const auto [input, of_weight, of_bias] =
      at::linear_backward({}, to_lazy(grad), to_lazy(weight), {true, false, false});
  expect_same(input, at::mm(grad, weight));
  EXPECT_FALSE(of_weight.defined());
  EXPECT_FALSE(of_bias.defined());
}

} // namespace
} // namespace lazyplug
