#pragma once

#include "lowering/graph.h"

namespace lazyplug {

// Whether whoever reads `value` may read `other` instead, which holds the same: their layouts are the same, nobody
// writes the one beside the other, and no storage gets memory that is not made for it. Not if both are roots: one would
// be copied in the end.
bool can_replace(GraphValue value, GraphValue other);

// Replaces the only output of a call, and erases it, if that is possible.
bool try_replace(Graph& graph, GraphNode& node, GraphValue other);

// The whole of the value that the call takes as its operand number `index`; undefined if it is a view of it, or none.
GraphValue whole_operand(const GraphNode& node, size_t index);

} // namespace lazyplug
