#include "lowering/passes/dead_code.h"

namespace lazyplug {

bool remove_dead_code(Graph& graph) {
  const size_t size = graph.nodes().size();
  graph.erase_unused();
  return graph.nodes().size() != size;
}

} // namespace lazyplug
