#pragma once

#include <string>

#include "lowering/ir.h"

namespace lazyplug {

// One node as text: "%4 = aten::mul.Tensor(%2, %3[Float[2] strides=[2]], 0.5)".
std::string to_text(const Trace& trace, NodeId id);

// The nodes that `roots` depend on, a line each, and the roots.
std::string to_text(const Trace& trace, c10::ArrayRef<Value> roots);

// The same as a graph for Graphviz. Edges are numbered by operand; roots have a
// double border.
std::string to_dot(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
