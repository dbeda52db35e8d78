#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Makes pure calls of those that write a tensor while its old value is still needed: relu_(x), which would copy x
// first, becomes relu(x). Only of pointwise ops on one dtype, whose two kernels do the same. Returns whether there were
// any.
bool make_writes_pure(Graph& graph);

} // namespace lazyplug
