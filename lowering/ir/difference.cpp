#include "lowering/ir/difference.h"

#include <algorithm>
#include <optional>
#include <sstream>

namespace lazyplug {
namespace {

using Kind = Difference::Kind;
using Found = std::optional<Difference>;

std::string text_of(const c10::IValue& constant) {
  std::ostringstream out;
  out << constant;
  return out.str();
}

std::string text_of(Value value) {
  if (!value.defined()) {
    return "None";
  }
  return "%" + std::to_string(value.node) + (value.output ? "." + std::to_string(value.output) : "");
}

std::string text_of(const Geometry* geometry) {
  return geometry ? to_string(*geometry) : "the whole";
}

const char* name(const Node& node) {
  switch (node.kind) {
    case NodeKind::kDeviceData:
      return "device_data";
    case NodeKind::kEmpty:
      return "empty";
    case NodeKind::kCall:
      break;
  }
  return node.signature->op->name().c_str();
}

bool same_op(const Node& node, const Node& older) {
  return node.kind == older.kind && (node.kind != NodeKind::kCall || node.signature->op == older.signature->op);
}

Difference differs(Kind kind, NodeId id, const std::string& subject, const std::string& now, const std::string& then) {
  return {kind, id, subject + " is " + now + ", was " + then};
}

Difference layouts_differ(NodeId id, const std::string& subject, const Geometry& now, const Geometry& then) {
  const Kind kind = now.dtype == then.dtype ? Kind::kShape : Kind::kDtype;
  return differs(kind, id, subject, to_string(now), to_string(then));
}

Found compare_layouts(
    NodeId id,
    const char* subject,
    const std::vector<Geometry>& now,
    const std::vector<Geometry>& then) {
  for (size_t i = 0; i < std::min(now.size(), then.size()); ++i) {
    if (!(now[i] == then[i])) {
      return layouts_differ(id, subject + std::to_string(i), now[i], then[i]);
    }
  }
  return std::nullopt;
}

Found compare_arguments(NodeId id, const Signature& now, const Signature& then) {
  for (size_t i = 0; i < now.args.size(); ++i) {
    const auto& a = now.args[i];
    const auto& b = then.args[i];
    const std::string subject = "argument '" + now.op->args()[i].name + "'";
    if (a.kind == ArgBinding::Kind::kConstant && b.kind == ArgBinding::Kind::kConstant) {
      if (text_of(a.constant) != text_of(b.constant)) {
        return differs(Kind::kConstant, id, subject, text_of(a.constant), text_of(b.constant));
      }
    } else if (
        a.kind == b.kind && a.kind == ArgBinding::Kind::kScalar && a.constant.tagKind() != b.constant.tagKind()) {
      return differs(Kind::kConstant, id, "the type of " + subject, a.constant.tagKind(), b.constant.tagKind());
    } else if (a.kind != b.kind || a.count != b.count) {
      return Difference{Kind::kConstant, id, subject + " is of another kind"};
    }
  }
  return std::nullopt;
}

Found compare_signatures(NodeId id, const Signature& now, const Signature& then) {
  if (now.hash == then.hash) {
    return std::nullopt;
  }
  if (Found found = compare_arguments(id, now, then)) {
    return found;
  }
  if (Found found = compare_layouts(id, "operand ", now.operands, then.operands)) {
    return found;
  }
  if (Found found = compare_layouts(id, "result ", now.outputs, then.outputs)) {
    return found;
  }
  return Difference{Kind::kConstant, id, "a number is of another type, or arguments share memory in another way"};
}

bool same_view(const View* a, const View* b) {
  return a == b || (a && b && *a == *b);
}

Found compare_operands(NodeId id, c10::ArrayRef<Operand> now, c10::ArrayRef<Operand> then) {
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string subject = "operand " + std::to_string(i);
    if (!(now[i].value == then[i].value)) {
      return differs(Kind::kOperand, id, subject, text_of(now[i].value), text_of(then[i].value));
    }
    if (!same_view(now[i].view, then[i].view)) {
      return differs(Kind::kShape, id, "the view of " + subject, text_of(now[i].view), text_of(then[i].view));
    }
  }
  return std::nullopt;
}

Found compare(const Trace& trace, const Trace& older, NodeId id) {
  const Node& now = trace.node(id);
  const Node& then = older.node(id);
  if (!same_op(now, then)) {
    return differs(Kind::kOp, id, "the op", name(now), name(then));
  }
  if (now.kind != NodeKind::kCall) {
    return *now.layout == *then.layout ? std::nullopt
                                       : Found(layouts_differ(id, "the layout", *now.layout, *then.layout));
  }
  if (Found found = compare_signatures(id, *now.signature, *then.signature)) {
    return found;
  }
  return compare_operands(id, trace.operands(now), older.operands(then));
}

const Value* first_without(c10::ArrayRef<Value> roots, c10::ArrayRef<Value> others) {
  const auto is_new = [&](Value root) { return std::find(others.begin(), others.end(), root) == others.end(); };
  const auto found = std::find_if(roots.begin(), roots.end(), is_new);
  return found == roots.end() ? nullptr : &*found;
}

// What a program is asked for is what lives on behind its end.
Difference compare_results(const Trace& trace, c10::ArrayRef<Value> now, c10::ArrayRef<Value> then) {
  if (const Value* kept = first_without(now, then)) {
    return {Kind::kResults, kept->node, text_of(*kept) + ", of " + name(trace.node(kept->node)) + ", lives on"};
  }
  if (const Value* gone = first_without(then, now)) {
    return {Kind::kResults, gone->node, text_of(*gone) + ", of " + name(trace.node(gone->node)) + ", does not live on"};
  }
  return {Kind::kResults, 0, "the results are asked for in another order"};
}

} // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kOp:
      return "op";
    case Kind::kShape:
      return "shape";
    case Kind::kDtype:
      return "dtype";
    case Kind::kConstant:
      return "constant";
    case Kind::kOperand:
      return "operand";
    case Kind::kEnd:
      return "end";
    case Kind::kResults:
      break;
  }
  return "results";
}

Difference
first_difference(const Trace& trace, c10::ArrayRef<Value> roots, const Trace& older, c10::ArrayRef<Value> older_roots) {
  const auto common = static_cast<NodeId>(std::min(trace.size(), older.size()));
  for (NodeId id = 0; id < common; ++id) {
    if (Found found = compare(trace, older, id)) {
      return *found;
    }
  }
  if (trace.size() != older.size()) {
    const bool is_longer = trace.size() > older.size();
    const std::string next = name((is_longer ? trace : older).node(common));
    return {Kind::kEnd, common, is_longer ? "it goes on with " + next : "it ends before " + next};
  }
  return compare_results(trace, roots, older_roots);
}

size_t similarity(const Trace& trace, const Trace& other) {
  const size_t common = std::min(trace.size(), other.size());
  size_t num_calls = 0;
  size_t num_alike = 0;
  size_t score = 0;
  bool identical = true;
  for (NodeId id = 0; id < common; ++id) {
    const Node& a = trace.node(id);
    const Node& b = other.node(id);
    num_calls += a.kind == NodeKind::kCall || b.kind == NodeKind::kCall;
    num_alike += a.kind == NodeKind::kCall && same_op(a, b);
    identical = identical && same_op(a, b) &&
                (a.kind == NodeKind::kCall ? a.signature->hash == b.signature->hash : *a.layout == *b.layout);
    score += same_op(a, b) + identical;
  }
  return 2 * num_alike > num_calls ? score : 0;
}

} // namespace lazyplug
