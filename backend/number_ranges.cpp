#include "backend/number_ranges.h"

#include <cmath>
#include <iterator>

namespace lazyplug {
namespace {

// Less than 32.
uint64_t range_of(double value) {
  constexpr double kLimits[] = {1, 0x1p7, 0x1p8, 0x1p15, 65504, 0x1p16, 0x1p31, 0x1p32, 0x1p63, 0x1p64, 0x1p128};
  if (value == 0 || std::isnan(value)) {
    return value == 0 ? 0 : 1;
  }
  const double* limit = std::begin(kLimits);
  while (limit != std::end(kLimits) && std::fabs(value) > *limit) {
    ++limit;
  }
  return 2 + 2 * (limit - std::begin(kLimits)) + (value < 0);
}

} // namespace

void NumberRanges::add(double number) {
  word_ = word_ << 5 | range_of(number);
}

void NumberRanges::add(const c10::IValue& scalar) {
  add(scalar.isDouble() ? scalar.toDouble() : scalar.isInt() ? static_cast<double>(scalar.toInt()) : 1.0);
}

void NumberRanges::add(const c10::TensorImpl& number) {
  const auto dtype = number.dtype();
  add(dtype == at::kDouble ? *number.data_dtype_initialized<double>()
      : dtype == at::kLong ? static_cast<double>(*number.data_dtype_initialized<int64_t>())
                           : 1.0);
}

} // namespace lazyplug
