#include "lowering/passes/common_subexpressions.h"

#include <unordered_map>

#include "lowering/passes/replace.h"

namespace lazyplug {
namespace {

bool is_function_of_operands(const GraphNode& node) {
  return node.is_call() && node.op().is_aten() && !node.op().random() && !node.op().writes() &&
         node.signature()->written.empty() && node.num_operands() != 0 &&
         node.op().base_name().find("empty") == std::string::npos;
}

Hash128 hash_of(const GraphNode& node) {
  Hash128 hash = node.signature()->hash;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphUse& operand = node.operand(i);
    hash = hash_combine(hash, reinterpret_cast<uintptr_t>(operand.value().node));
    hash = hash_combine(hash, static_cast<uint64_t>(operand.value().output) << 32 | operand.same_as());
    hash = operand.view() ? hash_combine(hash, *operand.view()) : hash_combine(hash, uint64_t{0});
  }
  for (const uint32_t scalar : node.scalars()) {
    hash = hash_combine(hash, uint64_t{scalar});
  }
  return hash;
}

std::vector<GraphValue> outputs_of(GraphNode& node) {
  std::vector<GraphValue> outputs;
  for (uint32_t i = 0; i < node.num_outputs(); ++i) {
    outputs.push_back(node.output(i));
  }
  return outputs;
}

} // namespace

bool merge_common_subexpressions(Graph& graph) {
  std::unordered_map<Hash128, GraphNode*> known;
  return change_nodes(graph, [&](GraphNode& node) {
    if (!is_function_of_operands(node)) {
      return false;
    }
    const auto [earlier, is_new] = known.try_emplace(hash_of(node), &node);
    return !is_new && try_replace(graph, node, outputs_of(*earlier->second));
  });
}

} // namespace lazyplug
