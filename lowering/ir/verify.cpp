#include "lowering/ir/verify.h"

#include <set>
#include <utility>

#include "lowering/ir/dump.h"

namespace lazyplug {
namespace {

using Key = std::pair<NodeId, uint32_t>;

struct BindingCounts {
  size_t operands = 0;
  size_t scalars = 0;
};

BindingCounts count_bindings(const Signature& signature) {
  BindingCounts counts;
  for (const ArgBinding& arg : signature.args) {
    counts.operands += arg.kind == ArgBinding::Kind::kOperand;
    counts.operands += arg.kind == ArgBinding::Kind::kOperandList ? arg.count : 0;
    counts.scalars += arg.kind == ArgBinding::Kind::kScalar || arg.kind == ArgBinding::Kind::kGenerator;
  }
  return counts;
}

class Verifier {
 public:
  explicit Verifier(const Trace& trace) : trace_(trace) {}

  void check_node(NodeId id) {
    const Node& node = trace_.node(id);
    if (node.kind != NodeKind::kCall) {
      return;
    }
    const auto counts = count_bindings(*node.signature);
    TORCH_INTERNAL_ASSERT(
        counts.operands == node.num_operands && counts.scalars == node.num_scalars,
        "%",
        id,
        " of ",
        node.signature->op->name(),
        " has ",
        node.num_operands,
        " operands and ",
        node.num_scalars,
        " scalars; its signature binds ",
        counts.operands,
        " and ",
        counts.scalars);
    for (const Operand& operand : trace_.operands(node)) {
      if (operand.value.defined()) {
        check_operand(id, operand);
      }
    }
    for (Value value : trace_.written_values(node)) {
      overwritten_.insert({value.node, value.output});
    }
  }

  void check_root(Value root) {
    TORCH_INTERNAL_ASSERT(exists(root), "root %", root.node, " does not exist");
    TORCH_INTERNAL_ASSERT(
        overwritten_.count({root.node, root.output}) == 0,
        "root has been written over: ",
        to_text(trace_, root.node));
    TORCH_INTERNAL_ASSERT(
        roots_.insert({root.node, root.output}).second,
        "two storages hold one value: ",
        to_text(trace_, root.node));
  }

 private:
  bool exists(Value value) const {
    return value.node < trace_.size() && value.output < trace_.node(value.node).num_outputs;
  }

  void check_operand(NodeId id, const Operand& operand) const {
    const Value value = operand.value;
    TORCH_INTERNAL_ASSERT(value.node < id && exists(value), "%", id, " reads %", value.node, ".", value.output);
    TORCH_INTERNAL_ASSERT(
        overwritten_.count({value.node, value.output}) == 0,
        "reads what has been written over: ",
        to_text(trace_, id));
    TORCH_INTERNAL_ASSERT(
        !operand.view || operand.view->extent_bytes() <= trace_.layout(value).extent_bytes(),
        "a view leaves its storage: ",
        to_text(trace_, id));
  }

  const Trace& trace_;
  std::set<Key> overwritten_;
  std::set<Key> roots_;
};

bool lies_as(const c10::IValue& value, const Geometry& expected, bool takes_float_numbers) {
  const bool is_defined = value.isTensor() && value.toTensor().defined();
  if (takes_float_numbers && expected.wrapped_number) {
    return is_defined && value.toTensor().unsafeGetTensorImpl()->is_wrapped_number();
  }
  return is_defined ? expected.matches_apart_from_offset(*value.toTensor().unsafeGetTensorImpl())
                    : expected.dtype == c10::ScalarType::Undefined;
}

} // namespace

void verify(const Trace& trace, c10::ArrayRef<Value> roots) {
  Verifier verifier(trace);
  for (NodeId id = 0; id < trace.size(); ++id) {
    verifier.check_node(id);
  }
  for (Value root : roots) {
    verifier.check_root(root);
  }
}

namespace {

bool is_listed(const GraphUse& use) {
  for (const GraphUse* other = use.value().uses(); other; other = other->next()) {
    if (other == &use) {
      return true;
    }
  }
  return false;
}

void check_operand(
    const Graph& graph,
    const GraphNode& node,
    const GraphUse& operand,
    const std::set<const GraphNode*>& earlier) {
  const GraphValue value = operand.value();
  TORCH_INTERNAL_ASSERT(
      earlier.count(value.node) != 0 && value.output < value.node->num_outputs(),
      "%",
      node.id(),
      " reads what does not stand before it");
  TORCH_INTERNAL_ASSERT(is_listed(operand), "a use is not in the list of its value: ", to_text(graph, node));
  TORCH_INTERNAL_ASSERT(
      !operand.view() || operand.view()->extent_bytes() <= value.layout().extent_bytes(),
      "a view leaves its storage: ",
      to_text(graph, node));
}

void check_call(const Graph& graph, const GraphNode& node, const std::set<const GraphNode*>& earlier) {
  const auto counts = count_bindings(*node.signature());
  TORCH_INTERNAL_ASSERT(
      counts.operands == node.num_operands() && counts.scalars == node.scalars().size(),
      node.op().name(),
      " has other operands or scalars than its signature binds");
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphUse& operand = node.operand(i);
    if (operand.value().defined()) {
      check_operand(graph, node, operand, earlier);
    }
    const GraphUse& same = node.operand(operand.same_as());
    TORCH_INTERNAL_ASSERT(
        same.value() == operand.value() && same.view() == operand.view() && same.index() <= i,
        "operands that are one tensor differ: ",
        to_text(graph, node));
  }
}

} // namespace

void verify(const Graph& graph) {
  std::set<const GraphNode*> earlier;
  for (const GraphNode& node : graph.nodes()) {
    if (node.is_call()) {
      check_call(graph, node, earlier);
    }
    earlier.insert(&node);
  }
  for (size_t i = 0; i < graph.num_roots(); ++i) {
    const GraphValue root = graph.root(i);
    TORCH_INTERNAL_ASSERT(
        earlier.count(root.node) != 0 && root.output < root.node->num_outputs(),
        "root ",
        i,
        " does not exist");
  }
}

void verify_arguments(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  if (signature.operands.empty()) {
    return; // made by hand: it promises nothing
  }
  auto expected = signature.operands.begin();
  const auto check = [&](const c10::IValue& value) {
    TORCH_INTERNAL_ASSERT(
        lies_as(value, *expected, signature.takes_float_numbers),
        signature.op->name(),
        " was promised ",
        to_string(*expected),
        ", and is given ",
        value.isTensor() ? to_string(Geometry::of(*value.toTensor().unsafeGetTensorImpl())) : "no tensor");
    ++expected;
  };
  for (size_t i = 0; i < signature.args.size(); ++i) {
    if (signature.args[i].kind == ArgBinding::Kind::kOperand) {
      check(arguments[i]);
    } else if (signature.args[i].kind == ArgBinding::Kind::kOperandList) {
      const auto elements = arguments[i].toListRef();
      std::for_each(elements.begin(), elements.end(), check);
    }
  }
}

} // namespace lazyplug
