#include "backend/native/optimizers.h"

#include <ATen/ATen.h>

#include <initializer_list>
#include <utility>
#include <vector>

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
  static bool step(
      const char* name,
      std::initializer_list<at::TensorList> lists,
      std::initializer_list<std::pair<const char*, double>> values) {
    native::StepOptions options;
    for (const auto& [option, value] : values) {
      options.add(option, value);
    }
    return native::optimizer_step(name, lists, options);
  }
  static bool sgd(const Tensors& params, const Tensors& grads, double lr = 0.5, double momentum = 0) {
    return step("sgd", {params, grads, {}}, {{"lr", lr}, {"momentum", momentum}});
  }
  bool adam(const Tensors& steps, double beta1, const char* other_option = "maximize", double other = 0) {
    return step(
        "adam",
        {params_, grads_, exp_avgs_, exp_avg_sqs_, {}, steps},
        {{"lr", 0.1}, {"beta1", beta1}, {"beta2", 0.99}, {"eps", 1e-8}, {other_option, other}});
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
  EXPECT_TRUE(adam(steps_, 0.9));
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
  EXPECT_TRUE(sgd(params_, grads_));
  EXPECT_EQ(num_recorded(), before + 1);
  EXPECT_TRUE(at::equal(params_[1].cpu(), random(1)[1].add(random(2)[1], -0.5)));
}

TEST_F(NativeOptimizers, WhatDoesNotFitIsLeftAsItIs) {
  EXPECT_FALSE(sgd(random(1), random(2))) << "on the CPU";
  EXPECT_FALSE(sgd(params_, to_lazy({at::ones({4, 3}).t(), at::ones({5})}))) << "lies otherwise";
  EXPECT_FALSE(sgd(params_, params_)) << "one storage";
  EXPECT_FALSE(sgd(params_, grads_, 1e300)) << "overflows";
  EXPECT_FALSE(sgd(params_, {grads_[0]})) << "a list is shorter";
  EXPECT_FALSE(sgd(params_, grads_, 0.5, 0.9)) << "there are no buffers";
  EXPECT_FALSE(sgd({params_[0].to(at::kHalf)}, {grads_[0].to(at::kHalf)})) << "another dtype";
  EXPECT_FALSE(adam(to_lazy(steps_), 0.9)) << "counts elsewhere";
  EXPECT_FALSE(adam(steps_, 1)) << "by zero";
  EXPECT_FALSE(adam(steps_, 0.9, "capturable", 1)) << "another variant";
  EXPECT_FALSE(adam(steps_, 0.9, "foreach", 0)) << "another variant";
  EXPECT_FALSE(adam(steps_, 0.9, "amsgrad", 1)) << "there are no maxima";
  EXPECT_FALSE(step("adam", {params_, grads_}, {{"lr", 0.1}})) << "lists are missing";
  EXPECT_FALSE(step("lbfgs", {params_, grads_}, {{"lr", 0.1}})) << "not one of these";
  {
    const at::AutoGradMode gradients(true);
    EXPECT_FALSE(sgd(params_, grads_)) << "may be differentiated";
  }
  EXPECT_TRUE(at::equal(params_[0].cpu(), random(1)[0]));
  EXPECT_EQ(params_[0]._version(), 0);
  EXPECT_EQ(steps_[0].item<float>(), 0);
}

} // namespace
} // namespace lazyplug
