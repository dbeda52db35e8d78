#include "lowering/passes/replace.h"

#include <algorithm>

namespace lazyplug {
namespace {

// A call that writes one of two tensors must not find them to be one.
bool writes_beside(const GraphNode& user, GraphValue value, GraphValue other) {
  bool reads_other = false;
  bool writes = false;
  for (size_t i = 0; i < user.num_operands(); ++i) {
    const GraphUse& operand = user.operand(i);
    const bool is_other = operand.value() == other;
    reads_other |= is_other;
    writes |= (is_other || operand.value() == value) && operand.is_write();
  }
  return reads_other && writes;
}

// Whether its memory is as large as its layout says. That of a leaf may be larger.
bool is_made_here(GraphValue value) {
  while (value.node->is_call() && value.output >= value.node->signature()->outputs.size()) {
    value = value.node->written_value(value.output - value.node->signature()->outputs.size());
  }
  return value.node->kind() != NodeKind::kDeviceData;
}

} // namespace

bool can_replace(GraphValue value, GraphValue other) {
  if (value.is_root() && other.is_root()) {
    return false;
  }
  const bool is_exact = is_made_here(other);
  for (const GraphUse* use = value.uses(); use; use = use->next()) {
    if ((!is_exact && (use->is_root() || use->is_write())) ||
        (!use->is_root() && writes_beside(*use->user(), value, other))) {
      return false;
    }
  }
  return value.layout() == other.layout();
}

bool try_replace(Graph& graph, GraphNode& node, c10::ArrayRef<GraphValue> others) {
  bool is_possible = others.size() == node.num_outputs();
  for (uint32_t i = 0; is_possible && i < others.size(); ++i) {
    is_possible = others[i].defined() && can_replace(node.output(i), others[i]);
  }
  if (!is_possible) {
    return false;
  }
  for (uint32_t i = 0; i < others.size(); ++i) {
    graph.replace_uses(node.output(i), others[i]);
  }
  graph.erase(node);
  return true;
}

GraphValue whole_operand(const GraphNode& node, size_t index) {
  const GraphUse& operand = node.operand(index);
  return operand.view() ? GraphValue() : operand.value();
}

} // namespace lazyplug
