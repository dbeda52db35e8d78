#pragma once

#include "kernels/tile_program.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// How an instruction of a tile program computes an op, or its variant that writes its first argument. For each argument
// of the op, in order:
//   t  a tensor: the instruction's next input
//   n  a number: the next input, too
//   s  a number: the instruction's own
//   .  a tensor that is not read
//   -  a constant, which decides nothing but how the result lies
struct PointwiseOp {
  enum class Kind : uint8_t {
    kComputes, // in the dtype of its result
    kSwapped,  // the same, with its two inputs in the other order
    kCompares, // the result is Bool
  };
  const char* base; // "aten::add"
  const char* overload;
  kernels::Opcode opcode;
  const char* args;
  Kind kind = Kind::kComputes;
};

// Null if there is none. Only ops that the CPU's kernels compute with elementary operations, so that the results are
// the same to the bit, in whatever groups.
const PointwiseOp* find_pointwise_op(const OpInfo& op);

} // namespace lazyplug
