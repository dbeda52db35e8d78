#include "lowering/dump.h"

#include <algorithm>
#include <sstream>

namespace lazyplug {
namespace {

std::string name(const Trace& trace, Value value) {
  std::string text = "%" + std::to_string(value.node);
  if (trace.node(value.node).num_outputs > 1) {
    text += "." + std::to_string(value.output);
  }
  return text;
}

std::string describe(const Trace& trace, const Operand& operand) {
  if (!operand.value.defined()) {
    return "None";
  }
  const std::string base = name(trace, operand.value);
  return operand.view ? base + "[" + to_string(*operand.view) + "]" : base;
}

std::string describe(const c10::IValue& constant) {
  std::ostringstream out;
  out << constant;
  return out.str();
}

std::string list(const Trace& trace, c10::ArrayRef<Operand> operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += (text.empty() ? "" : ", ") + describe(trace, operand);
  }
  return "[" + text + "]";
}

std::string arguments(const Trace& trace, const Node& node) {
  auto operands = trace.operands(node);
  auto scalars = trace.scalars(node);
  std::string text;
  for (const ArgBinding& arg : node.signature->args) {
    text += text.empty() ? "" : ", ";
    switch (arg.kind) {
      case ArgBinding::Kind::kConstant:
        text += describe(arg.constant);
        break;
      case ArgBinding::Kind::kOperand:
        text += describe(trace, operands.front());
        operands = operands.slice(1);
        break;
      case ArgBinding::Kind::kOperandList:
        text += list(trace, operands.slice(0, arg.count));
        operands = operands.slice(arg.count);
        break;
      case ArgBinding::Kind::kScalar:
      case ArgBinding::Kind::kGenerator:
        text += (arg.kind == ArgBinding::Kind::kGenerator ? "seed=" : "") + describe(scalars.front());
        scalars = scalars.slice(1);
        break;
    }
  }
  return text;
}

std::string result_layouts(const Trace& trace, NodeId id) {
  std::string text;
  for (uint32_t i = 0; i < trace.node(id).num_outputs; ++i) {
    text += (i == 0 ? "" : "; ") + to_string(trace.layout({id, i}));
  }
  return text;
}

std::string operation(const Trace& trace, const Node& node) {
  switch (node.kind) {
    case NodeKind::kDeviceData:
      return "device_data(" + std::to_string(node.first_scalar) + ")";
    case NodeKind::kEmpty:
      return "empty()";
    case NodeKind::kCall:
      break;
  }
  return node.signature->op->name() + "(" + arguments(trace, node) + ")";
}

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return result;
}

std::string dot_node(const Trace& trace, NodeId id, bool is_root) {
  const Node& node = trace.node(id);
  std::string label = escaped(operation(trace, node)) + "\\n" + escaped(result_layouts(trace, id));
  if (node.location) {
    label += "\\n" + escaped(node.location);
  }
  const char* shape = node.kind == NodeKind::kCall ? "box" : "ellipse";
  return "  n" + std::to_string(id) + " [shape=" + shape + (is_root ? ", peripheries=2" : "") + ", label=\"%" +
         std::to_string(id) + " = " + label + "\"];\n";
}

std::string dot_edges(const Trace& trace, NodeId id) {
  std::string text;
  const auto operands = trace.operands(trace.node(id));
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].value.defined()) {
      text += "  n" + std::to_string(operands[i].value.node) + " -> n" + std::to_string(id) + " [label=\"" +
              std::to_string(i) + "\"];\n";
    }
  }
  return text;
}

} // namespace

std::string to_text(const Trace& trace, NodeId id) {
  const Node& node = trace.node(id);
  std::string text = "%" + std::to_string(id) + " = " + operation(trace, node) + "  # " + result_layouts(trace, id);
  if (node.location) {
    text += std::string(" at ") + node.location;
  }
  return text;
}

std::string to_text(const Trace& trace, c10::ArrayRef<Value> roots) {
  std::string text;
  for (NodeId id : post_order(trace, roots)) {
    text += to_text(trace, id) + "\n";
  }
  std::string names;
  for (Value root : roots) {
    names += (names.empty() ? "" : ", ") + name(trace, root);
  }
  return text + "return " + names + "\n";
}

std::string to_dot(const Trace& trace, c10::ArrayRef<Value> roots) {
  std::string text = "digraph G {\n";
  for (NodeId id : post_order(trace, roots)) {
    const bool is_root = std::any_of(roots.begin(), roots.end(), [&](Value root) { return root.node == id; });
    text += dot_node(trace, id, is_root) + dot_edges(trace, id);
  }
  return text + "}\n";
}

} // namespace lazyplug
