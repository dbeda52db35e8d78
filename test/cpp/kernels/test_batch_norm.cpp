#include "kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace lazyplug::kernels {
namespace {

struct Computed {
  at::Tensor result;
  at::Tensor mean;
  at::Tensor rstd;
};

Computed compute(const at::Tensor& images) {
  const int64_t channels = images.size(1);
  Computed computed{at::empty_like(images), at::empty({channels}), at::empty({channels})};
  run(
      {images.size(0),
       channels,
       images.size(2),
       images.const_data_ptr<float>(),
       nullptr,
       nullptr,
       0.1F,
       1e-5,
       nullptr,
       nullptr,
       computed.result.mutable_data_ptr<float>(),
       computed.mean.mutable_data_ptr<float>(),
       computed.rstd.mutable_data_ptr<float>()});
  return computed;
}

TEST(BatchNormTest, Normalizes) {
  if (!has_batch_norm()) {
    GTEST_SKIP() << "this target has no kernel for batch norms";
  }
  const at::Tensor images = at::randn({7, 50, 31}) * 3 + 1;
  const Computed computed = compute(images);
  const at::Tensor exact = images.to(at::kDouble);
  const auto [variance, mean] = at::var_mean(exact, {0, 2}, /*correction=*/0, /*keepdim=*/true);
  EXPECT_TRUE(at::allclose(computed.result.to(at::kDouble), (exact - mean) * (variance + 1e-5).rsqrt(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(computed.mean.to(at::kDouble), mean.view(-1), 1e-6, 1e-7));
  EXPECT_TRUE(at::allclose(computed.rstd.to(at::kDouble), (variance.view(-1) + 1e-5).rsqrt(), 1e-6));
}

TEST(BatchNormTest, DoesNotDependOnThreads) {
  if (!has_batch_norm()) {
    GTEST_SKIP() << "this target has no kernel for batch norms";
  }
  const int num_threads = at::get_num_threads();
  const at::Tensor images = at::randn({16, 40, 300});
  at::set_num_threads(1);
  const Computed alone = compute(images);
  at::set_num_threads(3);
  const Computed together = compute(images);
  at::set_num_threads(num_threads);
  EXPECT_TRUE(together.result.equal(alone.result));
  EXPECT_TRUE(together.mean.equal(alone.mean));
  EXPECT_TRUE(together.rstd.equal(alone.rstd));
}

} // namespace
} // namespace lazyplug::kernels
