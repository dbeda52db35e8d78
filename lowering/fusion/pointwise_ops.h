#pragma once

#include "kernels/tile_program.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// How an instruction of a tile program computes an op. For each argument of the op, in order:
//   t  a tensor: the instruction's next input
//   n  a number: the next input, too
//   s  a number: the instruction's own
//   -  a constant, which decides nothing but the layout of the result
struct PointwiseOp {
  const char* name; // "aten::add.Tensor"
  kernels::Opcode opcode;
  const char* args;
  bool compares = false; // the result is Bool
};

// Null if there is none. Only ops that the CPU's kernels compute with elementary operations, so that the results are
// the same to the bit, in whatever groups.
const PointwiseOp* find_pointwise_op(const OpInfo& op);

} // namespace lazyplug
