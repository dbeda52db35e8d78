#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Removes calls that change nothing, to the bit: the second of two that undo each other, such as neg(neg(x)), and the
// second of two that do no more than one, such as relu(relu(x)). Numbers are inputs of a graph: nothing is known of
// them. Returns whether there were any.
bool remove_identities(Graph& graph);

} // namespace lazyplug
