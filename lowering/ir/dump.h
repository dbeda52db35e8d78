#pragma once

#include <string>

#include "lowering/ir/graph.h"

namespace lazyplug {

// One node as text: "%4 = aten::mul.Tensor(%2, %3[Float[2] strides=[2]], 0.5)  # Float[2] strides=[1]", and the user's
// line. A number that belongs to the graph, rather than to its inputs, is preceded by "const"; "same(0)" is the tensor
// of operand 0 once more.
std::string to_text(const Graph& graph, const GraphNode& node);
std::string to_text(const Trace& trace, NodeId id);

// A line for each node, except for leaves that nobody needs, and the roots. parse_graph() reads it.
std::string to_text(const Graph& graph);
// The nodes that `roots` depend on.
std::string to_text(const Trace& trace, c10::ArrayRef<Value> roots);

// The same as a graph for Graphviz. Edges are numbered by operand; roots have a double border.
std::string to_dot(const Graph& graph);
std::string to_dot(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
