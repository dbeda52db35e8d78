#include "kernels/extremes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lazyplug::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Of rows of three.
std::vector<int64_t> places(const std::vector<float>& from, bool is_least) {
  std::vector<int64_t> result(from.size() / 3);
  search(
      {static_cast<int64_t>(result.size()), 3, 1, is_least},
      c10::ScalarType::Float,
      from.data(),
      nullptr,
      result.data());
  return result;
}

TEST(Extremes, AreTheFirstOfEqualOnes) {
  EXPECT_EQ(places({1, 3, 3, 2, 2, 2, -1, -2, -3}, /*is_least=*/false), (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(places({1, 3, 1, 2, 2, 2, -1, -3, -3}, /*is_least=*/true), (std::vector<int64_t>{0, 0, 1}));
}

TEST(Extremes, AreTheFirstNanIfThereIsOne) {
  for (const bool is_least : {true, false}) {
    EXPECT_EQ(places({1, kNan, kNan, kNan, 5, 1, 1, 2, kNan}, is_least), (std::vector<int64_t>{1, 0, 2}));
  }
}

TEST(Extremes, OfRowsAreValuesAlone) {
  const std::vector<float> rows{3, 1, 2, 0, -1, 0};
  std::vector<float> found(2);
  EXPECT_TRUE(find_extremes({2, 3, 1, /*is_least=*/false}, c10::ScalarType::Float, rows.data(), found.data()));
  EXPECT_EQ(found, (std::vector<float>{3, 0}));
  const std::vector<float> nans{-1, kNan, 5};
  EXPECT_FALSE(find_extremes({1, 3, 1, /*is_least=*/false}, c10::ScalarType::Float, nans.data(), found.data()));
  const std::vector<float> zeros{0, -0.0F, -1};
  EXPECT_FALSE(find_extremes({1, 3, 1, /*is_least=*/false}, c10::ScalarType::Float, zeros.data(), found.data()));
  EXPECT_TRUE(find_extremes({1, 3, 1, /*is_least=*/true}, c10::ScalarType::Float, zeros.data(), found.data()));
  EXPECT_EQ(found[0], -1);
}

TEST(Extremes, OfColumnsAndTheirValues) {
  const std::vector<int64_t> from{1, 9, 5, 4, 3, 9}; // 3 x 2
  std::vector<int64_t> values(2);
  std::vector<int64_t> found(2);
  search({1, 3, 2, /*is_least=*/false}, c10::ScalarType::Long, from.data(), values.data(), found.data());
  EXPECT_EQ(values, (std::vector<int64_t>{5, 9}));
  EXPECT_EQ(found, (std::vector<int64_t>{1, 0}));
  EXPECT_FALSE(can_search(c10::ScalarType::Half));
}

TEST(Extremes, TestRowsOfBooleans) {
  const bool from[] = {true, true, false, true, false, false};
  bool out[3];
  test(3, 2, /*all=*/true, from, out);
  EXPECT_TRUE(out[0] && !out[1] && !out[2]);
  test(3, 2, /*all=*/false, from, out);
  EXPECT_TRUE(out[0] && out[1] && !out[2]);
}

} // namespace
} // namespace lazyplug::kernels
