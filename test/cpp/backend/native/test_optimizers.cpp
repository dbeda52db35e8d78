#include "backend/native/optimizers.h"

#include <ATen/ATen.h>

#include "common/metrics.h"
#include "test/cpp/backend/expect_same.h"
#include "test/cpp/backend/native/native_test.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

// What test/python/test_optimizer_steps.py compares with PyTorch's optimizers is not repeated here.
class NativeOptimizers : public NativeTest {
 protected:
  static Tensors random(size_t seed) {
    at::manual_seed(seed);
    return {at::randn({3, 4}), at::randn({5})};
  }
  static int64_t num_recorded() {
    return counter("lazy::tile_update_").value();
  }

  const at::NoGradGuard no_grad_;
  Tensors params_ = to_lazy(random(1));
  Tensors grads_ = to_lazy(random(2));
  Tensors exp_avgs_ = to_lazy(random(3));
  Tensors exp_avg_sqs_ = to_lazy({at::rand({3, 4}), at::rand({5})});
  Tensors steps_ = {at::zeros({}), at::ones({})};
};

TEST_F(NativeOptimizers, AnAdamStepIsOneNode) {
  const auto before = num_recorded();
  EXPECT_TRUE(
      native::adam_step(
          params_,
          grads_,
          exp_avgs_,
          exp_avg_sqs_,
          steps_,
          {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}));
  EXPECT_EQ(num_recorded(), before + 1);
  EXPECT_EQ(steps_[0].item<float>(), 1);
  EXPECT_EQ(steps_[1].item<float>(), 2);
  const at::Tensor expected = random(3)[0].lerp(random(2)[0], 0.1);
  EXPECT_TRUE(at::equal(exp_avgs_[0].cpu(), expected));
  EXPECT_EQ(params_[0]._version(), 1);
  EXPECT_EQ(exp_avg_sqs_[0]._version(), 2);
  EXPECT_EQ(grads_[0]._version(), 0);
}

TEST_F(NativeOptimizers, AnSgdStepIsOneNode) {
  const auto before = num_recorded();
  EXPECT_TRUE(native::sgd_step(params_, grads_, {}, {.lr = 0.5}));
  EXPECT_EQ(num_recorded(), before + 1);
  EXPECT_TRUE(at::equal(params_[1].cpu(), random(1)[1].add(random(2)[1], -0.5)));
}

TEST_F(NativeOptimizers, WhatDoesNotFitIsLeftAsItIs) {
  const auto step = [&](const Tensors& params, const Tensors& grads, double lr = 0.5) {
    return native::sgd_step(params, grads, {}, {.lr = lr});
  };
  EXPECT_FALSE(step(random(1), random(2))) << "on the CPU";
  EXPECT_FALSE(step(params_, to_lazy({at::ones({4, 3}).t(), at::ones({5})}))) << "lies otherwise";
  EXPECT_FALSE(step(params_, params_)) << "one storage";
  EXPECT_FALSE(step(params_, grads_, 1e300)) << "overflows";
  EXPECT_FALSE(step(params_, {grads_[0]})) << "a list is shorter";
  EXPECT_FALSE(native::sgd_step(params_, grads_, {}, {.lr = 0.5, .momentum = 0.9})) << "there are no buffers";
  EXPECT_FALSE(step({params_[0].to(at::kHalf)}, {grads_[0].to(at::kHalf)})) << "another dtype";
  EXPECT_FALSE(native::adam_step(params_, grads_, exp_avgs_, exp_avg_sqs_, to_lazy(steps_), {.lr = 1, .beta1 = 0.9}));
  EXPECT_FALSE(native::adam_step(params_, grads_, exp_avgs_, exp_avg_sqs_, steps_, {.lr = 1, .beta1 = 1})) << "by zero";
  {
    const at::AutoGradMode gradients(true);
    EXPECT_FALSE(step(params_, grads_)) << "may be differentiated";
  }
  EXPECT_TRUE(at::equal(params_[0].cpu(), random(1)[0]));
  EXPECT_EQ(params_[0]._version(), 0);
  EXPECT_EQ(steps_[0].item<float>(), 0);
}

} // namespace
} // namespace lazyplug
