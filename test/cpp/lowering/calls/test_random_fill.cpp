#include "lowering/calls/random_fill.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lowering/calls/runtime_ops.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

const OpInfo& normal() {
  return make_op("aten::normal_");
}

c10::Stack call(const at::Tensor& self, double a, double b, const c10::IValue& seed) {
  return {self, a, b, seed};
}

TEST(RandomFill, IsOfFourOps) {
  EXPECT_EQ(random_fill_symbol(normal()), runtime_ops().normal_);
  EXPECT_EQ(random_fill_symbol(make_op("aten::uniform_")), runtime_ops().uniform_);
  EXPECT_EQ(random_fill_symbol(make_op("aten::bernoulli_", "float")), runtime_ops().bernoulli_);
  EXPECT_EQ(random_fill_symbol(make_op("aten::random_", "from")), runtime_ops().random_);
  for (const auto* other : {"aten::exponential_", "aten::random_", "aten::bernoulli", "aten::relu_"}) {
    EXPECT_FALSE(random_fill_symbol(make_op(other))) << other;
  }
  EXPECT_FALSE(random_fill_symbol(make_op("aten::bernoulli_", "Tensor")));
}

TEST(RandomFill, TakesTheSeedAndOthersAGeneratorOfIt) {
  EXPECT_EQ(seeded(normal(), -17).toInt(), -17);
  EXPECT_EQ(static_cast<int64_t>(seeded(make_op("aten::exponential_"), -17).toGenerator().current_seed()), -17);
  const at::Tensor self = at::empty({3, 50});
  c10::Stack stack = call(self, 0, 1, int64_t{-17});
  ASSERT_TRUE(fill_randomly(normal(), stack));
  ASSERT_EQ(stack.size(), 1);
  EXPECT_TRUE(stack[0].toTensor().is_same(self));
  EXPECT_NEAR(self.std().item<float>(), 1, 0.3);
}

TEST(RandomFill, DrawsIntegersBetweenTwoBounds) {
  const OpInfo& op = make_op("aten::random_", "from");
  const at::Tensor self = at::empty({3, 50}, at::kLong);
  c10::Stack stack = {self, 3, 9, 5};
  ASSERT_TRUE(fill_randomly(op, stack));
  EXPECT_EQ(self.min().item<int64_t>(), 3);
  EXPECT_EQ(self.max().item<int64_t>(), 8);
  const std::vector<c10::Stack> others = {
      {self, 3, c10::IValue(), 5},
      {self, 0, (int64_t{1} << 32) + 1, 5},
      {self, -(int64_t{1} << 60), 0, 5}};
  for (c10::Stack other : others) {
    EXPECT_FALSE(fill_randomly(op, other));
    EXPECT_TRUE(other.back().isGenerator()) << "for PyTorch's kernel";
  }
}

TEST(RandomFill, FillsMemoryInItsOrder) {
  const at::Tensor rows = at::empty({4, 6});
  const at::Tensor columns = at::empty({6, 4}).t();
  c10::Stack first = call(rows, 0, 1, 5);
  c10::Stack second = call(columns, 0, 1, 5);
  ASSERT_TRUE(fill_randomly(normal(), first));
  ASSERT_TRUE(fill_randomly(normal(), second));
  EXPECT_TRUE(rows.flatten().equal(columns.t().flatten()));
}

TEST(RandomFill, LeavesTheRestToPyTorch) {
  for (const at::Tensor& other : {at::zeros({8}, at::kDouble), at::zeros({8}, at::kHalf)}) {
    c10::Stack stack = call(other, 0, 1, 5);
    EXPECT_FALSE(fill_randomly(normal(), stack));
    EXPECT_EQ(stack.size(), 4);
    EXPECT_TRUE(stack.back().isGenerator());
    stack.back() = 5;
    fill_randomly(*random_fill_symbol(normal()), stack);
    EXPECT_TRUE(other.equal(at::zeros({8}, other.options()).normal_(0, 1, seeded_generator(5))));
  }
}

TEST(RandomFill, FillsBetweenGapsInTheOrderOfElements) {
  const at::Tensor dense = at::empty({8});
  const at::Tensor gaps = at::zeros({8, 2});
  c10::Stack first = call(dense, 0, 1, 5);
  c10::Stack second = call(gaps.select(1, 0), 0, 1, 5);
  ASSERT_TRUE(fill_randomly(normal(), first));
  ASSERT_TRUE(fill_randomly(normal(), second));
  EXPECT_TRUE(gaps.select(1, 0).equal(dense));
  EXPECT_TRUE(gaps.select(1, 1).equal(at::zeros({8})));
}

TEST(RandomFill, RefusesWhatPyTorchRefuses) {
  const auto expect_refused = [](const OpInfo& op, c10::Stack stack) {
    EXPECT_FALSE(fill_randomly(op, stack));
    stack.back() = 5;
    EXPECT_THROW(fill_randomly(*random_fill_symbol(op), stack), c10::Error);
  };
  const at::Tensor self = at::zeros({8});
  expect_refused(normal(), call(self, 0, -1, 5));
  expect_refused(make_op("aten::uniform_"), call(self, 1, 0, 5));
  expect_refused(make_op("aten::uniform_"), call(self, -3e38, 3e38, 5));
  expect_refused(make_op("aten::random_", "from"), {at::zeros({8}, at::kLong), 5, 5, 5});
  expect_refused(make_op("aten::bernoulli_", "float"), {self, 1.5, 5});
  expect_refused(make_op("aten::bernoulli_", "float"), {self, -0.5, 5});
  expect_refused(make_op("aten::bernoulli_", "float"), {self, std::nan(""), 5});
  EXPECT_TRUE(self.equal(at::zeros({8})));
}

} // namespace
} // namespace lazyplug
