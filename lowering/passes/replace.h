#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Whether whoever reads `value` may read `other` instead, which holds the same: their layouts are the same, nobody
// writes the one beside the other, and no storage gets memory that is not made for it. Not if both are roots: one would
// be copied in the end.
bool can_replace(GraphValue value, GraphValue other);

// Replaces each output of a call by the value of `others` in its place, and erases the call, if that is possible for
// all of them.
bool try_replace(Graph& graph, GraphNode& node, c10::ArrayRef<GraphValue> others);

// Calls `change(node)`, which may erase the node, for each in order. Returns whether any call has returned true.
template <typename F>
bool change_nodes(Graph& graph, const F& change) {
  bool any = false;
  for (auto next = graph.nodes().begin(); next != graph.nodes().end();) {
    any |= change(*next++);
  }
  return any;
}

// The whole of the value that the call takes as its operand number `index`; undefined if it is a view of it, or none.
GraphValue whole_operand(const GraphNode& node, size_t index);

} // namespace lazyplug
