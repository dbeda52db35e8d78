#include "test/cpp/backend/expect_same.h"

namespace lazyplug {
namespace {

// What the derivative makes of it is tested in Python: autograd needs an accelerator.
class NativeGroupNorm : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    at::manual_seed(1);
  }

  static at::Tensor numbers(at::MemoryFormat format) {
    return at::randn({2, 4, 3, 5}).contiguous(format);
  }
};

TEST_F(NativeGroupNorm, ItsKernelIsGivenWhatItIsAskedFor) {
  const at::Tensor x = numbers(at::MemoryFormat::ChannelsLast);
  const auto backward = [](const at::Tensor& g, const at::Tensor& x) {
    const at::Tensor statistics = at::ones({2, 2}, x.options());
    return std::get<0>(
        at::native_group_norm_backward(g, x, statistics, statistics, {}, 2, 4, 15, 2, {true, false, false}));
  };
  expect_same(backward(to_lazy(x), to_lazy(x)), backward(x, x));
  const at::Tensor copy = x.contiguous();
  const at::Tensor lazy = to_lazy(x).contiguous();
  expect_same(backward(lazy, lazy), backward(copy, copy));
}

TEST_F(NativeGroupNorm, GradientsOfParametersAlone) {
  const at::Tensor x = numbers(at::MemoryFormat::ChannelsLast);
  const auto backward = [](const at::Tensor& x, std::array<bool, 3> wanted) {
    const at::Tensor statistics = at::ones({2, 2}, x.options());
    return at::native_group_norm_backward(
        x,
        x,
        statistics,
        statistics,
        at::ones({4}, x.options()),
        2,
        4,
        15,
        2,
        wanted);
  };
  const auto [none, weight, bias] = backward(to_lazy(x), {false, true, true});
  const auto expected = backward(x, {true, true, true}); // without the first, this kernel crashes
  EXPECT_FALSE(none.defined());
  expect_same(weight, std::get<1>(expected));
  expect_same(bias, std::get<2>(expected));
}

TEST_F(NativeGroupNorm, OtherCopiesAreContiguous) {
  const at::Tensor x = to_lazy(numbers(at::MemoryFormat::ChannelsLast)).requires_grad_();
  EXPECT_TRUE(x.contiguous().is_contiguous());
  EXPECT_TRUE(x.contiguous(at::MemoryFormat::ChannelsLast).is_same(x));
  EXPECT_NE(error_of([&] { x.contiguous(at::MemoryFormat::Preserve); }), "");
}

} // namespace
} // namespace lazyplug
