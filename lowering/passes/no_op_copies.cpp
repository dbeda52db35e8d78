#include "lowering/passes/no_op_copies.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lowering/passes/replace.h"

namespace lazyplug {
namespace {

// Ops that return their first operand, perhaps with another layout or dtype.
constexpr std::array<std::string_view, 5> kCopies =
    {"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::lift_fresh_copy", "aten::detach_copy"};

bool is_copy(const GraphNode& node) {
  return node.is_call() && std::find(kCopies.begin(), kCopies.end(), node.op().base_name()) != kCopies.end();
}

} // namespace

bool remove_no_op_copies(Graph& graph) {
  return change_nodes(graph, [&](GraphNode& node) {
    return is_copy(node) && try_replace(graph, node, whole_operand(node, 0));
  });
}

} // namespace lazyplug
