#pragma once

#include "lowering/ir/graph.h"

namespace lazyplug {

// Removes what no root depends on, except for leaves. Returns whether there was any.
bool remove_dead_code(Graph& graph);

} // namespace lazyplug
