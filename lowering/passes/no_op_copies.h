#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Removes copies that lie as what they are copies of: clone(), contiguous(), to() of the same dtype. Who writes the one
// while the other is needed copies it then. Returns whether there were any.
bool remove_no_op_copies(Graph& graph);

} // namespace lazyplug
