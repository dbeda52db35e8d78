#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Computes once what equal calls of PyTorch's own ops compute: the same op, constants, operands and inputs. Never calls
// that write, that draw random numbers, or whose results are not initialised. Returns whether there were any.
bool merge_common_subexpressions(Graph& graph);

} // namespace lazyplug
