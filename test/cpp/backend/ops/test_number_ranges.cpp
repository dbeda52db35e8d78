#include "backend/ops/number_ranges.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace lazyplug {
namespace {

NumberRanges ranges_of(const std::vector<c10::IValue>& scalars) {
  NumberRanges ranges;
  for (const c10::IValue& scalar : scalars) {
    ranges.add(scalar);
  }
  return ranges;
}

bool same_range(const c10::IValue& a, const c10::IValue& b) {
  return ranges_of({a}) == ranges_of({b});
}

NumberRanges range_of_tensor(const at::Tensor& number) {
  NumberRanges ranges;
  ranges.add(*number.unsafeGetTensorImpl());
  return ranges;
}

TEST(NumberRanges, NumbersOfLikeMagnitudeAreOfOneRange) {
  EXPECT_TRUE(same_range(2, 100));
  EXPECT_TRUE(same_range(0.25, 0.75));
  EXPECT_TRUE(same_range(-300, -30000));
  EXPECT_TRUE(same_range(1e200, 1e300));
}

TEST(NumberRanges, WhatIsNotProbablyValidElsewhereIsApart) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<c10::IValue> numbers = {0, nan, 0.5, -0.5, 1, -1, std::nextafter(1, 2), -1.5};
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(same_range(numbers[i], numbers[j])) << numbers[i] << " and " << numbers[j];
    }
  }
}

TEST(NumberRanges, IntegersAndFloatingPointNumbersAreMeasuredAlike) {
  EXPECT_TRUE(same_range(7, 7.0));
  EXPECT_TRUE(same_range(-1000, -1000.0));
}

TEST(NumberRanges, BoolsCountAsIntegers) {
  EXPECT_TRUE(same_range(true, 1));
  EXPECT_TRUE(same_range(false, 0));
}

TEST(NumberRanges, BothPartsOfComplexNumbersCount) {
  using Complex = c10::complex<double>;
  EXPECT_TRUE(same_range(Complex(50, 3), Complex(60, 2)));
  EXPECT_FALSE(same_range(Complex(50, 3), Complex(50, 0)));
  EXPECT_FALSE(same_range(Complex(50, 0), Complex(1e300, 0)));
}

TEST(NumberRanges, OrderMatters) {
  EXPECT_FALSE(ranges_of({0, 2}) == ranges_of({2, 0}));
  EXPECT_FALSE(ranges_of({2}) == ranges_of({2, 2}));
}

TEST(NumberRanges, NumbersAreComparedWithTheOneBefore) {
  EXPECT_EQ(ranges_of({2, 3}), ranges_of({5, 9}));
  EXPECT_EQ(ranges_of({2, 2}), ranges_of({3, 3}));
  EXPECT_FALSE(ranges_of({2, 3}) == ranges_of({3, 2}));
  EXPECT_FALSE(ranges_of({2, 3}) == ranges_of({3, 3}));
  EXPECT_FALSE(ranges_of({1e30, 2e30, 3e30}) == ranges_of({1e30, 3e30, 2e30}));
}

TEST(NumberRanges, DistancesThatADtypeCannotHoldAreApart) {
  EXPECT_EQ(ranges_of({-40000, 20000}), ranges_of({-40000, 22000}));
  EXPECT_FALSE(ranges_of({-40000, 20000}) == ranges_of({-40000, 30000})) << "half";
  EXPECT_FALSE(ranges_of({-1e38, 1e38}) == ranges_of({-2e38, 2e38})) << "float";
  EXPECT_FALSE(ranges_of({-1e307, 1e307}) == ranges_of({-1e308, 1e308})) << "double";
}

TEST(NumberRanges, ManyNumbersAreAllKept) {
  std::vector<c10::IValue> numbers(40, 2);
  const NumberRanges before = ranges_of(numbers);
  numbers.front() = 0;
  EXPECT_FALSE(ranges_of(numbers) == before);
}

TEST(NumberRanges, NumbersInTensorsCountAsThose) {
  EXPECT_EQ(range_of_tensor(at::scalar_tensor(-0.5, at::kDouble)), ranges_of({-0.5}));
  EXPECT_EQ(range_of_tensor(at::scalar_tensor(1000, at::kLong)), ranges_of({1000}));
  EXPECT_EQ(range_of_tensor(at::scalar_tensor(false, at::kBool)), ranges_of({false}));
  const c10::complex<double> complex(1000, -2);
  EXPECT_EQ(range_of_tensor(at::scalar_tensor(complex, at::kComplexDouble)), ranges_of({complex}));
  EXPECT_EQ(range_of_tensor(at::scalar_tensor(1000, at::kFloat)), ranges_of({1})) << "no Python number";
}

TEST(NumberRanges, WhatFitsADtypeIsApartFromWhatDoesNot) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  constexpr double kBFloat16Max = 0x1.FEp127;
  const std::vector<std::pair<double, double>> pairs = {
      {127, 128},
      {-128, -129},
      {255, 256},
      {-255, -256}, // -255 becomes 1
      {32767, 32768},
      {-32768, -32769},
      {65504, 65505}, // half
      {65535, 65536},
      {-65535, -65536},
      {0x1p31 - 1, 0x1p31},
      {-0x1p31, -0x1p31 - 1},
      {0x1p32 - 1, 0x1p32},
      {kBFloat16Max, std::nextafter(kBFloat16Max, kInfinity)},
      {kFloatMax, std::nextafter(kFloatMax, kInfinity)},
      {-kFloatMax, std::nextafter(-kFloatMax, -kInfinity)},
      {kInfinity, std::numeric_limits<double>::max()}, // every floating-point dtype has an infinity
  };
  for (const auto& [fits, overflows] : pairs) {
    EXPECT_FALSE(same_range(fits, overflows)) << fits << " and " << overflows;
  }
}

} // namespace
} // namespace lazyplug
