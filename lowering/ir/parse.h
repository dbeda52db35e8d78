#pragma once

#include <c10/util/FunctionRef.h>

#include <string>
#include <string_view>

#include "lowering/ir/graph.h"

namespace lazyplug {

// Reads a graph that to_text() has printed; users' lines are left out. `find_op` knows ops by name, as in
// "aten::add.Tensor". Raises ValueError, with the line, if it is no such text.
Graph parse_graph(std::string_view text, c10::function_ref<const OpInfo&(const std::string&)> find_op);

} // namespace lazyplug
