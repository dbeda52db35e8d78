#include "lowering/passes/dead_code.h"

namespace lazyplug {

bool remove_dead_code(Graph& graph) {
  const size_t size = graph.nodes().size();
  for (auto next = graph.nodes().end(); next != graph.nodes().begin();) {
    GraphNode& node = *--next;
    if (node.kind() != NodeKind::kDeviceData && !node.has_uses()) {
      next = graph.erase(node);
    }
  }
  return graph.nodes().size() != size;
}

} // namespace lazyplug
