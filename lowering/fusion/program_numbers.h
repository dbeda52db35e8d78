#pragma once

#include <ATen/core/ivalue.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug {

// Nothing if it is neither float nor int.
inline std::optional<double> real_number(const c10::IValue& number) {
  if (number.isDouble()) {
    return number.toDouble();
  }
  return number.isInt() ? std::optional(static_cast<double>(number.toInt())) : std::nullopt;
}

// As programs that compute in this dtype are to have it: rounded once, which for large integers is not as a double is.
inline double number_for(c10::ScalarType computing, const c10::IValue& number) {
  if (!number.isInt()) {
    return computing == c10::ScalarType::Float ? static_cast<float>(number.toDouble()) : number.toDouble();
  }
  return computing == c10::ScalarType::Float ? static_cast<float>(number.toInt()) : static_cast<double>(number.toInt());
}

// To one of the narrow floats.
inline double rounded_to(c10::ScalarType dtype, double number) {
  const auto value = static_cast<float>(number);
  return dtype == c10::ScalarType::Half ? static_cast<float>(c10::Half(value))
                                        : static_cast<float>(c10::BFloat16(value));
}

// PyTorch's kernels raise if a number of their own does.
inline bool overflows_float(double number) {
  return std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max();
}

// Which numbers a program subtracts multiples by. The CPU's kernels add the negated number instead.
inline std::vector<bool> find_negated_numbers(const kernels::Program& program) {
  std::vector<bool> is_negated(program.num_numbers);
  for (const auto& instruction : program.instructions) {
    if (instruction.opcode == kernels::Opcode::kSub) {
      is_negated[instruction.number] = true;
    }
  }
  return is_negated;
}

// A number, which is `value`, as a program is to have it: the integer 0 has no negative, and the least one is its own.
inline double negatable(const c10::IValue& number, double value, bool is_negated) {
  const bool is_own_negative = number.isInt() && (value == 0 || number.toInt() == std::numeric_limits<int64_t>::min());
  return is_negated && is_own_negative ? -value : value;
}

} // namespace lazyplug
