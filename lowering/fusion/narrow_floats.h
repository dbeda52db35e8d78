// Floats of 16 bits in a group: see kernels::is_narrow_float().
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/opcode.h"

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

} // namespace lazyplug
