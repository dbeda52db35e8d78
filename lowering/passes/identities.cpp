#include "lowering/passes/identities.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lowering/passes/replace.h"

namespace lazyplug {
namespace {

constexpr std::array<std::string_view, 2> kUndoThemselves = {"aten::neg", "aten::bitwise_not"};
constexpr std::array<std::string_view, 6> kIdempotent =
    {"aten::abs", "aten::relu", "aten::ceil", "aten::floor", "aten::trunc", "aten::round"};

template <typename Table>
bool contains(const Table& names, const OpInfo& op) {
  return op.name() == op.base_name() && std::find(names.begin(), names.end(), op.name()) != names.end();
}

// What the call is, if that is known before; undefined if not.
GraphValue equal_value(const GraphNode& node) {
  const bool undoes = contains(kUndoThemselves, node.op());
  if (!undoes && !contains(kIdempotent, node.op())) {
    return {};
  }
  const GraphValue operand = whole_operand(node, 0);
  if (!operand.defined() || !operand.node->is_call() || &operand.node->op() != &node.op()) {
    return {};
  }
  return undoes ? whole_operand(*operand.node, 0) : operand;
}

} // namespace

bool remove_identities(Graph& graph) {
  return change_nodes(graph, [&](GraphNode& node) {
    return node.is_call() && try_replace(graph, node, equal_value(node));
  });
}

} // namespace lazyplug
