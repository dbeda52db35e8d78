#include "lowering/ir/dump.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace lazyplug {
namespace {

std::string name(GraphValue value) {
  std::string text = "%" + std::to_string(value.node->id());
  if (value.node->num_outputs() > 1) {
    text += "." + std::to_string(value.output);
  }
  return text;
}

std::string describe(const GraphUse& operand) {
  if (!operand.value().defined()) {
    return "None";
  }
  const std::string base = name(operand.value());
  if (!operand.view()) {
    return base;
  }
  return operand.same_as() < operand.index() ? "same(" + std::to_string(operand.same_as()) + ")"
                                             : base + "[" + to_string(*operand.view()) + "]";
}

std::string describe(const c10::IValue& constant) {
  std::ostringstream out;
  if (constant.isString()) {
    out << std::quoted(constant.toStringRef());
  } else {
    out << constant;
  }
  return out.str();
}

std::string arguments(const Graph& graph, const GraphNode& node) {
  std::string text;
  size_t operand = 0;
  size_t scalar = 0;
  for (size_t i = 0; i < node.signature()->args.size(); ++i) {
    const ArgBinding& arg = node.signature()->args[i];
    text += i == 0 ? "" : ", ";
    switch (arg.kind) {
      case ArgBinding::Kind::kConstant: {
        const bool is_number = node.op().args()[i].kind == ArgKind::kScalar && !arg.constant.isNone();
        text += (is_number ? "const " : "") + describe(arg.constant);
        break;
      }
      case ArgBinding::Kind::kOperand:
        text += describe(node.operand(operand++));
        break;
      case ArgBinding::Kind::kOperandList:
        text += "[";
        for (uint32_t j = 0; j < arg.count; ++j) {
          text += (j == 0 ? "" : ", ") + describe(node.operand(operand++));
        }
        text += "]";
        break;
      case ArgBinding::Kind::kScalar:
        text += describe(graph.scalars()[node.scalars()[scalar++]]);
        break;
      case ArgBinding::Kind::kGenerator:
        text += "seed=" + describe(graph.scalars()[node.scalars()[scalar++]]);
        break;
    }
  }
  return text;
}

std::string result_layouts(const GraphNode& node) {
  std::string text;
  for (uint32_t i = 0; i < node.num_outputs(); ++i) {
    text += (i == 0 ? "" : "; ") + to_string(node.layout_of(i));
  }
  return text;
}

std::string operation(const Graph& graph, const GraphNode& node) {
  switch (node.kind()) {
    case NodeKind::kDeviceData:
      return "device_data(" + std::to_string(node.leaf_index()) + ")";
    case NodeKind::kEmpty:
      return "empty()";
    case NodeKind::kCall:
      break;
  }
  return node.op().name() + "(" + arguments(graph, node) + ")";
}

bool is_shown(const GraphNode& node) {
  return node.kind() != NodeKind::kDeviceData || node.has_uses();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return result;
}

bool is_root(const GraphNode& node) {
  for (uint32_t i = 0; i < node.num_outputs(); ++i) {
    if (node.is_root(i)) {
      return true;
    }
  }
  return false;
}

std::string dot_node(const Graph& graph, const GraphNode& node) {
  std::string label = escaped(operation(graph, node)) + "\\n" + escaped(result_layouts(node));
  if (node.location()) {
    label += "\\n" + escaped(node.location());
  }
  const std::string id = std::to_string(node.id());
  return "  n" + id + " [shape=" + (node.is_call() ? "box" : "ellipse") + (is_root(node) ? ", peripheries=2" : "") +
         ", label=\"%" + id + " = " + label + "\"];\n";
}

std::string dot_edges(const GraphNode& node) {
  std::string text;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    if (const GraphValue value = node.operand(i).value(); value.defined()) {
      text += "  n" + std::to_string(value.node->id()) + " -> n" + std::to_string(node.id()) + " [label=\"" +
              std::to_string(i) + "\"];\n";
    }
  }
  return text;
}

Graph needed(const Trace& trace, c10::ArrayRef<Value> roots) {
  Graph graph(trace, roots);
  graph.erase_unused();
  return graph;
}

} // namespace

std::string to_text(const Graph& graph, const GraphNode& node) {
  std::string text = "%" + std::to_string(node.id()) + " = " + operation(graph, node) + "  # " + result_layouts(node);
  if (node.location()) {
    text += std::string(" at ") + node.location();
  }
  return text;
}

std::string to_text(const Trace& trace, NodeId id) {
  const Graph graph(trace, {}, id + 1);
  return to_text(graph, graph.nodes().back());
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (const GraphNode& node : graph.nodes()) {
    text += is_shown(node) ? to_text(graph, node) + "\n" : "";
  }
  text += "return ";
  for (size_t i = 0; i < graph.num_roots(); ++i) {
    text += (i == 0 ? "" : ", ") + name(graph.root(i));
  }
  return text + "\n";
}

std::string to_text(const Trace& trace, c10::ArrayRef<Value> roots) {
  return to_text(needed(trace, roots));
}

std::string to_dot(const Graph& graph) {
  std::string text = "digraph G {\n";
  for (const GraphNode& node : graph.nodes()) {
    text += is_shown(node) ? dot_node(graph, node) + dot_edges(node) : "";
  }
  return text + "}\n";
}

std::string to_dot(const Trace& trace, c10::ArrayRef<Value> roots) {
  return to_dot(needed(trace, roots));
}

} // namespace lazyplug
