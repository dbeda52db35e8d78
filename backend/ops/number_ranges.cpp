#include "backend/ops/number_ranges.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <iterator>

#include "common/hash.h"

namespace lazyplug {
namespace {

constexpr double kBelowOne = 0x1.FFFFFFFFFFFFFp-1;
constexpr double kHalfMax = 65504;
constexpr double kBFloat16Max = 0x1.FEp127;
constexpr double kFloatMax = FLT_MAX;

// The ends of ranges: 1 and what is below, and what fits int8, uint8, int16, half, uint16, int32, uint32, int64,
// uint64, bfloat16, float and double, the ends included. Negative integers fit an unsigned dtype if their magnitudes
// do; infinity fits the floating-point ones.
constexpr double kEnds[] = {
    kBelowOne,
    1,
    127,
    255,
    32767,
    kHalfMax,
    65535,
    0x1p31 - 1,
    0x1p32 - 1,
    0x1p63,
    0x1p64,
    kBFloat16Max,
    kFloatMax,
    DBL_MAX};
constexpr double kNegativeEnds[] = {
    kBelowOne,
    1,
    128,
    255,
    32768,
    kHalfMax,
    65535,
    0x1p31,
    0x1p32 - 1,
    0x1p63,
    0x1p64,
    kBFloat16Max,
    kFloatMax,
    DBL_MAX};
static_assert(std::size(kEnds) == std::size(kNegativeEnds));

// Less than 32.
uint64_t range_of(double value) {
  if (value == 0 || std::isnan(value)) {
    return value == 0 ? 0 : 1;
  }
  const bool is_negative = value < 0;
  const auto& ends = is_negative ? kNegativeEnds : kEnds;
  const auto* end = std::lower_bound(std::begin(ends), std::end(ends), std::fabs(value));
  return 2 + 2 * (end - std::begin(ends)) + is_negative;
}

// Less than 8. Which of two numbers is greater, and in which floating-point dtypes
// the distance from the smaller one to it is finite.
uint64_t range_of_distance(double distance) {
  if (!(distance > 0)) {
    return distance < 0 ? 0 : distance == 0 ? 1 : 2;
  }
  return uint64_t{3} + (distance > kHalfMax) + (distance > kBFloat16Max) + (distance > kFloatMax) +
         (distance > DBL_MAX);
}

} // namespace

void NumberRanges::add(double number) {
  constexpr uint64_t kOdd = 0x9E37'79B9'7F4A'7C15; // spreads what comes first over the whole word
  word_ = word_ * kOdd + (range_of_distance(number - last_) << 5 | range_of(number)) + 1;
  last_ = number;
}

void NumberRanges::add(const c10::IValue& scalar) {
  if (scalar.isIntList()) {
    const auto numbers = scalar.toIntVector();
    word_ = hash_words(numbers.data(), numbers.size(), {word_}).lo;
    return;
  }
  if (scalar.isList()) {
    for (const c10::IValue& element : scalar.toListRef()) {
      add(element);
    }
    return;
  }
  if (scalar.isComplexDouble()) {
    return add(scalar.toComplexDouble());
  }
  add(scalar.isDouble() ? scalar.toDouble()
      : scalar.isInt()  ? static_cast<double>(scalar.toInt())
                        : static_cast<double>(scalar.toBool()));
}

void NumberRanges::add(c10::complex<double> number) {
  add(number.real());
  add(number.imag());
}

void NumberRanges::add(const c10::TensorImpl& number) {
  switch (c10::typeMetaToScalarType(number.dtype())) {
    case at::kDouble:
      return add(*number.data_dtype_initialized<double>());
    case at::kLong:
      return add(static_cast<double>(*number.data_dtype_initialized<int64_t>()));
    case at::kBool:
      return add(static_cast<double>(*number.data_dtype_initialized<bool>()));
    case at::kComplexDouble:
      return add(*number.data_dtype_initialized<c10::complex<double>>());
    default:
      return add(1.0);
  }
}

} // namespace lazyplug
