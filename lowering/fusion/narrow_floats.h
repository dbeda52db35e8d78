// Floats of 16 bits in a group: see kernels::is_narrow_float().
#pragma once

#include <c10/core/ScalarType.h>

#include <vector>

#include "kernels/opcode.h"
#include "kernels/tile_program.h"

namespace lazyplug {

// What rounds to it.
inline kernels::Opcode narrowing(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half ? kernels::Opcode::kToHalf : kernels::Opcode::kToBFloat16;
}

// Whether what it makes of numbers of a narrow dtype has that dtype, too.
inline bool needs_no_rounding(kernels::Opcode opcode) {
  switch (opcode) {
    case kernels::Opcode::kNeg:
    case kernels::Opcode::kAbs:
    case kernels::Opcode::kRelu:
    case kernels::Opcode::kFloor:
    case kernels::Opcode::kCeil:
    case kernels::Opcode::kRound:
    case kernels::Opcode::kTrunc:
    case kernels::Opcode::kZero:
    case kernels::Opcode::kOne:
      return true;
    default:
      return false;
  }
}

// What the CPU's kernels compute of narrow ones in several steps, some of which they round, at least in some places.
inline bool rounds_between(kernels::Opcode opcode) {
  return opcode == kernels::Opcode::kRsqrt || opcode == kernels::Opcode::kSigmoidBackward ||
         opcode == kernels::Opcode::kCube || opcode == kernels::Opcode::kInverseSquare;
}

// Square roots of narrow ones are not those of the library.
inline kernels::Opcode opcode_for(c10::ScalarType dtype, kernels::Opcode opcode) {
  return kernels::is_narrow_float(dtype) && opcode == kernels::Opcode::kSqrt ? kernels::Opcode::kSqrtExact : opcode;
}

// Appends an instruction to a program on memory of this dtype, and what rounds its result. False, and nothing appended,
// if the CPU's kernels do not round all elements alike: of sums with a multiple, some once and others twice.
inline bool
append_rounded(std::vector<kernels::Instruction>& program, c10::ScalarType dtype, kernels::Instruction instruction) {
  const bool is_narrow = kernels::is_narrow_float(dtype);
  const bool has_product = instruction.opcode == kernels::Opcode::kAdd || instruction.opcode == kernels::Opcode::kSub;
  if (is_narrow && (has_product || rounds_between(instruction.opcode))) {
    return false;
  }
  instruction.opcode = opcode_for(dtype, instruction.opcode);
  program.push_back(instruction);
  if (is_narrow && !needs_no_rounding(instruction.opcode)) {
    program.push_back({narrowing(dtype), instruction.out, {instruction.out}});
  }
  return true;
}

} // namespace lazyplug
