#pragma once

#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/graph.h"

// What is asked of a call before a PointwiseGroup takes it in, whatever else is in the group.
namespace lazyplug {

// How the call sees an operand, which is there.
const Geometry& seen_by(const GraphUse& operand);
// The dtype in which operands are compared, or computed in place, if that is the one of a tensor that is no number.
c10::ScalarType promoted_dtype(const Signature& signature);
// Whether all operands are booleans.
bool are_truths(const Signature& signature);
// Whether the call makes what a group can make of it: one new value, or one in place of all of its first operand; of a
// layer norm, the result and two numbers for each row.
bool makes_values(const GraphNode& node, const PointwiseOp& op);
// The function that the package computes itself wherever the call runs, hence in groups, too; null: it is none such.
const PointwiseOp* function_of(const GraphNode& node);

} // namespace lazyplug
