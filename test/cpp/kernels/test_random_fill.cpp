#include "kernels/random_fill.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "test/cpp/kernels/targets.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

using Kind = RandomFill::Kind;

at::Tensor filled(const RandomFill& how, int64_t n, std::optional<at::ScalarType> given = std::nullopt) {
  const at::ScalarType dtype = given.value_or(how.kind == Kind::kIntegers ? at::kLong : at::kFloat);
  at::Tensor result = at::empty({n}, dtype);
  fill(how, dtype, n, result.mutable_data_ptr());
  return result;
}

TEST(RandomFill, HasTheWordsOfPhilox) {
  // The known answers of the paper's own implementation for key and counter 0; the words of a counter are 16 apart.
  const at::Tensor numbers = filled({Kind::kUniform, 0, 0, 1}, 64);
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(numbers[16 * i].item<float>(), static_cast<float>(words[i] >> 8) * 0x1p-24F) << i;
  }
}

TEST(RandomFill, AreNumbersOfTheirPlacesAlone) {
  for (const auto& how :
       {RandomFill{Kind::kUniform, 7, -1, 3},
        {Kind::kNormal, 7, 1, 2},
        {Kind::kBernoulli, 7, 0.3, 0},
        {Kind::kIntegers, 7, -5, 1000}}) {
    const at::Tensor all = filled(how, 200'000);
    for (const int64_t n : {0, 1, 63, 64, 65, 1000}) {
      EXPECT_TRUE(filled(how, n).equal(all.slice(0, 0, n))) << n;
    }
    const int threads = at::get_num_threads();
    at::set_num_threads(3);
    EXPECT_TRUE(filled(how, 200'000).equal(all));
    at::set_num_threads(threads);
    RandomFill other = how;
    other.seed = 8;
    EXPECT_FALSE(filled(other, 1000).equal(all.slice(0, 0, 1000)));
    other.seed = 7 | (int64_t{1} << 40);
    EXPECT_FALSE(filled(other, 1000).equal(all.slice(0, 0, 1000)));
  }
}

TEST(RandomFill, AreDistributedAsTheySay) {
  constexpr int64_t kCount = 1'000'000;
  const auto mean_of_power = [](const at::Tensor& x, int power) {
    return x.to(at::kDouble).pow(power).mean().item<double>();
  };
  const at::Tensor uniform = filled({Kind::kUniform, 1, -1, 1}, kCount);
  EXPECT_GE(uniform.min().item<float>(), -1);
  EXPECT_LT(uniform.max().item<float>(), 1);
  EXPECT_NEAR(mean_of_power(uniform, 1), 0, 0.003);
  EXPECT_NEAR(mean_of_power(uniform, 2), 1.0 / 3, 0.002);
  EXPECT_NEAR(mean_of_power(uniform, 4), 1.0 / 5, 0.002);
  const at::Tensor normal = filled({Kind::kNormal, 1, 0, 1}, kCount);
  EXPECT_NEAR(mean_of_power(normal, 1), 0, 0.005);
  EXPECT_NEAR(mean_of_power(normal, 2), 1, 0.007);
  EXPECT_NEAR(mean_of_power(normal, 3), 0, 0.02);
  EXPECT_NEAR(mean_of_power(normal, 4), 3, 0.05);
  EXPECT_NEAR(mean_of_power(normal, 6), 15, 0.7);
  for (const double bound : {-2.0, -1.0, 0.0, 0.5, 3.0}) {
    const double share = (normal < bound).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, std::erfc(-bound / std::sqrt(2.0)) / 2, 0.0025) << bound;
  }
  const at::Tensor moved = filled({Kind::kNormal, 1, 5, 0.5}, 1000);
  EXPECT_TRUE(moved.allclose(normal.slice(0, 0, 1000) * 0.5 + 5));
}

TEST(RandomFill, DrawsAllIntegersAlike) {
  constexpr int64_t kCount = 600'000;
  const at::Tensor few = filled({Kind::kIntegers, 1, -2, 4}, kCount);
  EXPECT_EQ(few.min().item<int64_t>(), -2);
  EXPECT_EQ(few.max().item<int64_t>(), 3);
  const at::Tensor counts = (few + 2).bincount();
  EXPECT_LT((counts - kCount / 6).abs().max().item<int64_t>(), 1'500);
  const at::Tensor many = filled({Kind::kIntegers, 1, 0, 0x1p32}, kCount);
  EXPECT_NEAR(many.to(at::kDouble).mean().item<double>(), 0x1p31, 0x1p23);
  EXPECT_GT(many.max().item<int64_t>(), 0xFFFF'0000);
  EXPECT_TRUE(filled({Kind::kIntegers, 1, 7, 8}, 100).equal(at::full({100}, 7, at::kLong)));
}

TEST(RandomFill, DrawsOnesWithTheirProbability) {
  for (const auto dtype : {at::kFloat, at::kBool}) {
    for (const double p : {0.0, 1e-3, 0.5, 0.9, 1.0}) {
      const at::Tensor ones = filled({Kind::kBernoulli, 5, p, 0}, 300'000, dtype).to(at::kDouble);
      EXPECT_NEAR(ones.mean().item<double>(), p, 5 * std::sqrt(p * (1 - p) / 300'000)) << p;
      EXPECT_TRUE(((ones == 0) | (ones == 1)).all().item<bool>());
    }
  }
}

void expect_same_numbers(const Loops<float>& target) {
  for (const auto& how :
       {RandomFill{Kind::kUniform, 3, 0, 1}, {Kind::kBernoulli, 3, 0.5, 0}, {Kind::kNormal, 3, 0, 1}}) {
    std::vector<float> ours(10 * kRandomBlock);
    std::vector<float> theirs(ours.size());
    loops<float>().fill_random(how, 5, 15, ours.data());
    target.fill_random(how, 5, 15, theirs.data());
    for (size_t i = 0; i < ours.size(); ++i) {
      // Functions are rounded otherwise where nothing multiplies and adds at once.
      ASSERT_NEAR(ours[i], theirs[i], how.kind == Kind::kNormal ? 1e-5 : 0) << i;
    }
  }
}

void expect_same_integers(const Loops<float>& target) {
  const RandomFill how{Kind::kIntegers, 3, -7, 1'000'000};
  std::vector<int64_t> ours(10 * kRandomBlock);
  std::vector<int64_t> theirs(ours.size());
  loops<float>().fill_random_long(how, 5, 15, ours.data());
  target.fill_random_long(how, 5, 15, theirs.data());
  EXPECT_EQ(ours, theirs);
}

TEST(RandomFill, IsTheSameOnEachTarget) {
  for_each_target(expect_same_numbers);
  for_each_target(expect_same_integers);
}

} // namespace
} // namespace lazyplug::kernels
