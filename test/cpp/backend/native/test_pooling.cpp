#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativePooling : public BackendTest {};

TEST_F(NativePooling, LaysResultsOutLikeTheCpu) {
  const at::Tensor straight = at::randn({3, 4, 9});
  const at::Tensor permuted = at::randn({3, 9, 4}).permute({0, 2, 1});
  for (const at::Tensor& x : {straight, permuted, permuted.select(0, 1)}) {
    for (const bool is_differentiated : {false, true}) {
      const at::Tensor on_cpu = x.detach().requires_grad_(is_differentiated);
      const at::Tensor on_device = to_lazy(x).detach().requires_grad_(is_differentiated);
      const at::Tensor expected = at::max_pool1d(on_cpu, 3, 2, 1);
      const at::Tensor result = at::max_pool1d(on_device, 3, 2, 1);
      EXPECT_EQ(result.strides(), expected.strides()) << x.strides() << is_differentiated;
      EXPECT_EQ(result.requires_grad(), is_differentiated);
      expect_equal(result.detach(), expected.detach());
    }
    const c10::InferenceMode inference;
    EXPECT_EQ(at::max_pool1d(to_lazy(x), 3, 2, 1).strides(), at::max_pool1d(x, 3, 2, 1).strides()) << x.strides();
  }
}

TEST_F(NativePooling, RefusesWhatTheCpuRefuses) {
  const auto expect_same_error = [](const at::Tensor& x, int64_t padding) {
    const std::string expected = error_of([&] { at::max_pool1d(x, 3, 2, padding); });
    EXPECT_EQ(error_of([&] { at::max_pool1d(to_lazy(x), 3, 2, padding); }), expected);
    EXPECT_NE(expected, "");
  };
  expect_same_error(at::randn({3, 4, 9}), 2);
  expect_same_error(at::randn({3, 4, 9, 2}), 1);
}

} // namespace
} // namespace lazyplug
