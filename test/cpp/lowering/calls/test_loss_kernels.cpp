#include "lowering/calls/loss_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <limits>
#include <string>

#include "test/cpp/lowering/exact_call.h"

namespace lazyplug {
namespace {

constexpr int64_t kNoReduction = at::Reduction::None;
constexpr int64_t kMeanReduction = at::Reduction::Mean;
constexpr int64_t kSumReduction = at::Reduction::Sum;
constexpr int64_t kIgnored = -100;

class LossKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
  }
};

void expect_loss_of_classes(const at::Tensor& scores, const at::Tensor& targets, int64_t reduction) {
  c10::Stack results;
  const c10::Stack arguments{scores, targets, c10::IValue(), reduction, kIgnored};
  ASSERT_TRUE(is_computed_exactly("aten::nll_loss_forward", arguments, &results)) << scores.sizes();
  c10::Stack of_gradient = arguments;
  of_gradient.insert(of_gradient.begin(), at::randn({}, scores.scalar_type()));
  of_gradient.push_back(results[1]);
  EXPECT_TRUE(is_computed_exactly("aten::nll_loss_backward", of_gradient)) << scores.sizes();
}

TEST_F(LossKernelsTest, HaveTheBitsOfPyTorchForClasses) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t reduction : {kMeanReduction, kSumReduction}) {
      for (const int64_t batch : {1, 2, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 1000, 1024}) {
        const at::Tensor scores = at::randn({batch, 6}, dtype).log_softmax(1);
        at::Tensor targets = at::randint(6, {batch}, at::kLong);
        expect_loss_of_classes(scores, targets, reduction);
        targets = targets.masked_fill(at::rand({batch}) < 0.3, kIgnored);
        expect_loss_of_classes(scores, targets, reduction);
      }
    }
  }
  expect_loss_of_classes(at::randn({3, 4}), at::full({3}, kIgnored, at::kLong), kMeanReduction); // NaN
}

void expect_loss_of_differences(const char* name, const at::Tensor& x, const at::Tensor& y, int64_t reduction) {
  c10::Stack arguments{x, y, reduction};
  if (std::string(name) != "aten::mse_loss") {
    arguments.emplace_back(1.0);
  }
  const bool is_one = x.numel() == 1; // there is nothing to add up
  EXPECT_EQ(is_computed_exactly(name, arguments), !is_one) << x.sizes();
  arguments.insert(arguments.begin(), at::randn({}, x.scalar_type()));
  EXPECT_TRUE(is_computed_exactly((std::string(name) + "_backward").c_str(), arguments)) << x.sizes();
}

TEST_F(LossKernelsTest, HaveTheBitsOfPyTorchForDifferences) {
  for (const char* name : {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss"}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t reduction : {kMeanReduction, kSumReduction}) {
        for (const int64_t size : {1, 2, 7, 8, 15, 33, 100, 1024, 4096}) {
          if (size > 1024 && std::string(name) != "aten::mse_loss") {
            continue; // PyTorch's are quicker
          }
          expect_loss_of_differences(name, at::randn({size}, dtype) * 2, at::randn({size}, dtype), reduction);
        }
        expect_loss_of_differences(name, at::randn({3, 5, 7}, dtype), at::randn({3, 5, 7}, dtype), reduction);
      }
    }
  }
}

TEST_F(LossKernelsTest, SoDoSpecialNumbers) {
  const at::Tensor x = at::randn({20});
  const at::Tensor y = at::randn({20});
  y[0] = std::numeric_limits<float>::quiet_NaN();
  y[1] = std::numeric_limits<float>::infinity();
  y[2] = x[2];
  y[3] = x[3] - 1;
  y[4] = x[4] + 1;
  for (const char* name : {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss"}) {
    expect_loss_of_differences(name, x, y, kSumReduction);
    expect_loss_of_differences(name, x.slice(0, 2), y.slice(0, 2), kMeanReduction);
  }
}

TEST_F(LossKernelsTest, LeaveTheRestToPyTorch) {
  const at::Tensor scores = at::randn({3, 4});
  const at::Tensor targets = at::tensor({0, 3, 1}, at::kLong);
  const auto is_loss = [&](const at::Tensor& scores,
                           const at::Tensor& targets,
                           int64_t reduction = kMeanReduction,
                           const c10::IValue& weight = {}) {
    return is_computed_exactly("aten::nll_loss_forward", {scores, targets, weight, reduction, kIgnored});
  };
  EXPECT_TRUE(is_loss(scores, targets));
  EXPECT_FALSE(is_loss(scores, targets, kNoReduction));
  EXPECT_FALSE(is_loss(scores, targets, kMeanReduction, at::rand({4})));
  EXPECT_FALSE(is_loss(scores, targets + 1)) << "out of bounds";
  EXPECT_FALSE(is_loss(scores[0], targets[0]));
  EXPECT_FALSE(is_loss(at::randn({1025, 4}), at::randint(4, {1025}, at::kLong)));
  EXPECT_FALSE(is_loss(scores, targets.to(at::kByte)));
  EXPECT_FALSE(is_loss(scores.to(at::kBFloat16), targets));
  EXPECT_FALSE(is_loss(at::randn({4, 3}).t(), targets));

  const at::Tensor other = at::randn({3, 4});
  EXPECT_TRUE(is_computed_exactly("aten::mse_loss", {scores, other, kMeanReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss", {scores, other, kNoReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss", {scores, other[0], kMeanReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss", {scores, other.to(at::kDouble), kMeanReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss", {scores.t(), other.t(), kMeanReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss", {at::randn({4097}), at::randn({4097}), kMeanReduction}));
  EXPECT_FALSE(is_computed_exactly("aten::smooth_l1_loss", {scores, other, kMeanReduction, 0.5}));
  EXPECT_FALSE(
      is_computed_exactly("aten::smooth_l1_loss", {at::randn({1025}), at::randn({1025}), kMeanReduction, 1.0}));
  EXPECT_FALSE(is_computed_exactly("aten::huber_loss", {scores, other, kMeanReduction, 2.0}));
  EXPECT_FALSE(is_computed_exactly("aten::mse_loss_backward", {at::randn({3, 4}), scores, other, kNoReduction}));
  EXPECT_FALSE(
      is_computed_exactly("aten::mse_loss_backward", {at::randn({}, at::kDouble), scores, other, kMeanReduction}));
}

} // namespace
} // namespace lazyplug
