#include "lowering/nodes/node_attributes.h"

#include <algorithm>

#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;
using JitValue = torch::jit::Value;

struct AttributeNames {
  const c10::Symbol origin = c10::Symbol::attr("origin");
  const c10::Symbol replaced = c10::Symbol::attr("replaced");
  const c10::Symbol overload = c10::Symbol::attr("overload");
  const c10::Symbol writes = c10::Symbol::attr("writes");
  const c10::Symbol work = c10::Symbol::attr("work");
  const c10::Symbol ops = c10::Symbol::attr("ops");
  const c10::Symbol returns_views = c10::Symbol::attr("returns_views");
};

const AttributeNames& attribute_names() {
  static const AttributeNames names;
  return names;
}

void add_written(const JitValue& input, NodeId call, std::vector<const JitValue*>& written) {
  const JitNode& maker = *input.node();
  if (maker.kind() == runtime_ops().own && origin_of(maker) == call) {
    if (std::find(written.begin(), written.end(), &input) == written.end()) {
      written.push_back(&input);
    }
  } else if (maker.kind() == runtime_ops().strided_view) {
    add_written(*maker.input(0), call, written);
  } else if (maker.kind() == torch::jit::prim::ListConstruct) {
    for (const JitValue* element : maker.inputs()) {
      add_written(*element, call, written);
    }
  }
}

} // namespace

void set_origin(JitNode& node, NodeId origin, bool is_replaced) {
  node.i_(attribute_names().origin, origin);
  if (is_replaced) {
    node.i_(attribute_names().replaced, 1);
  }
}

NodeId origin_of(const JitNode& node) {
  return static_cast<NodeId>(node.i(attribute_names().origin));
}

bool is_replaced(const JitNode& node) {
  return node.hasAttribute(attribute_names().replaced);
}

void set_overload(JitNode& node, const std::string& overload) {
  if (!overload.empty()) {
    node.s_(attribute_names().overload, overload);
  }
}

std::string overload_of(const JitNode& node) {
  return node.hasAttribute(attribute_names().overload) ? node.s(attribute_names().overload) : "";
}

void set_writes(JitNode& node, std::vector<int64_t> inputs) {
  if (!inputs.empty()) {
    node.ival_(attribute_names().writes, std::move(inputs));
  }
}

std::vector<const JitValue*> written_values(const JitNode& node) {
  std::vector<const JitValue*> written;
  if (node.hasAttribute(attribute_names().writes)) {
    for (const int64_t input : node.ival(attribute_names().writes).toIntVector()) {
      add_written(*node.input(input), origin_of(node), written);
    }
  }
  return written;
}

void set_work(JitNode& node, float work) {
  if (work != 0) {
    node.f_(attribute_names().work, work);
  }
}

float work_of(const JitNode& node) {
  return node.hasAttribute(attribute_names().work) ? static_cast<float>(node.f(attribute_names().work)) : 0;
}

void set_ops(JitNode& node, std::vector<std::string> ops) {
  node.ival_(attribute_names().ops, c10::List<std::string>(c10::ArrayRef<std::string>(ops)));
}

bool has_ops(const JitNode& node) {
  return node.hasAttribute(attribute_names().ops);
}

std::vector<std::string> ops_of(const JitNode& node) {
  std::vector<std::string> ops;
  for (const c10::IValue& op : node.ival(attribute_names().ops).toListRef()) {
    ops.push_back(op.toStringRef());
  }
  return ops;
}

void set_returns_views(JitNode& node) {
  node.i_(attribute_names().returns_views, 1);
}

bool returns_views(const JitNode& node) {
  return node.hasAttribute(attribute_names().returns_views);
}

// Graph::toString() puts "= " before nodes without outputs, which the parser does not expect.
std::string text_of(const torch::jit::Graph& graph) {
  const std::string printed = graph.toString(/*print_source_locations=*/false);
  std::string text;
  size_t begin = 0;
  for (size_t found = printed.find("\n   = "); found != std::string::npos; found = printed.find("\n   = ", begin)) {
    text.append(printed, begin, found - begin).append("\n  ");
    begin = found + 6;
  }
  return text.append(printed, begin);
}

c10::TensorTypePtr type_of(const Geometry& geometry) {
  return c10::TensorType::create(
      geometry.dtype,
      /*device=*/std::nullopt,
      c10::VaryingShape<int64_t>(std::vector<int64_t>(geometry.sizes.begin(), geometry.sizes.end())),
      c10::VaryingShape<int64_t>(std::vector<int64_t>(geometry.strides.begin(), geometry.strides.end())),
      /*requires_grad=*/std::nullopt);
}

std::optional<Geometry> geometry_of(const c10::Type& type) {
  const auto* tensor = type.castRaw<c10::TensorType>();
  if (!tensor || !tensor->scalarType()) {
    return std::nullopt;
  }
  const auto sizes = tensor->sizes().concrete_sizes();
  const auto strides = tensor->strides().concrete_sizes();
  if (!sizes || (!strides && !sizes->empty())) {
    return std::nullopt;
  }
  Geometry geometry;
  geometry.dtype = *tensor->scalarType();
  geometry.sizes = *sizes;
  if (strides) {
    geometry.strides = *strides;
  }
  return geometry;
}

const Geometry* TypeGeometries::find(const c10::Type& type) {
  const auto [known, is_new] = by_type_.try_emplace(&type, nullptr);
  if (is_new) {
    if (auto geometry = geometry_of(type)) {
      known->second = add(std::move(*geometry));
    }
  }
  return known->second;
}

} // namespace lazyplug
