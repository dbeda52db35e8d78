#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug {

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

// A number, which is `value`, as a program is to have it: the integer 0 has no negative.
inline double negatable(const c10::IValue& number, double value, bool is_negated) {
  return is_negated && number.isInt() && value == 0 ? -0.0 : value;
}

} // namespace lazyplug
