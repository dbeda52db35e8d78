#include "lowering/ir/trace_slice.h"

#include <algorithm>
#include <unordered_map>

namespace lazyplug {
namespace {

// Copies nodes, one after the other, from a trace to another.
class Copier {
 public:
  Copier(const Trace& from, bool with_data) : from_(from), with_data_(with_data), numbers_(from.size()) {}

  void copy(NodeId id) {
    const Node& node = from_.node(id);
    switch (node.kind) {
      case NodeKind::kDeviceData:
        numbers_[id] = to_.add_device_data(data(node), *node.layout, from_.leaf_info(node.leaf_index)).node;
        break;
      case NodeKind::kEmpty:
        numbers_[id] = to_.add_empty(*node.layout).node;
        break;
      case NodeKind::kCall:
        numbers_[id] = copy_call(node);
        break;
    }
  }

  Value renumbered(Value value) const {
    return value.defined() ? Value{numbers_[value.node], value.output} : value;
  }

  Trace result() && {
    return std::move(to_);
  }

 private:
  at::Tensor data(const Node& leaf) const {
    return with_data_ ? from_.leaves()[leaf.leaf_index] : at::Tensor();
  }

  NodeId copy_call(const Node& node) {
    c10::SmallVector<Operand, 8> operands;
    for (const Operand& operand : from_.operands(node)) {
      operands.push_back({renumbered(operand.value), copy_view(operand.view)});
    }
    views_.clear();
    c10::SmallVector<c10::IValue, 4> scalars;
    for (const c10::IValue& scalar : from_.scalars(node)) {
      scalars.push_back(with_data_ ? scalar : without_data(scalar));
    }
    const auto num_written = static_cast<uint32_t>(node.num_outputs - node.signature->outputs.size());
    return to_.add_call(node.signature, operands, scalars, num_written, node.location);
  }

  static c10::IValue without_data(const c10::IValue& scalar) {
    if (!scalar.isList()) {
      return {};
    }
    const size_t length = scalar.toListRef().size();
    return scalar.isIntList() ? c10::IValue(std::vector<int64_t>(length))
                              : c10::IValue(c10::List<at::Scalar>(std::vector<at::Scalar>(length)));
  }

  // Operands of one call with one view are one tensor, and stay so.
  const View* copy_view(const View* view) {
    if (!view) {
      return nullptr;
    }
    for (const auto& [original, copy] : views_) {
      if (original == view) {
        return copy;
      }
    }
    const uint32_t offset_scalar = view->moves() ? copy_offset(view->offset_scalar) : View::kFixed;
    return views_.emplace_back(view, to_.own(*view, offset_scalar)).second;
  }

  uint32_t copy_offset(uint32_t scalar) {
    const auto [known, is_new] = offsets_.try_emplace(scalar, 0);
    if (is_new) {
      const c10::IValue& offset = from_.all_scalars()[scalar];
      known->second = to_.add_scalar(with_data_ ? offset : without_data(offset));
    }
    return known->second;
  }

  const Trace& from_;
  const bool with_data_;
  Trace to_;
  std::vector<NodeId> numbers_;
  std::vector<std::pair<const View*, const View*>> views_; // of the current call
  std::unordered_map<uint32_t, uint32_t> offsets_;         // of moving views: scalars of both traces
};

const OpInfo& alias_op() {
  static const auto* op = new OpInfo(c10::Dispatcher::singleton().findSchemaOrThrow("aten::alias", ""), {});
  return *op;
}

SignaturePtr alias_signature(const Geometry& geometry) {
  auto signature = c10::make_intrusive<Signature>();
  signature->op = &alias_op();
  signature->key = signature->hash = hash_combine(hash_bytes("aten::alias"), geometry);
  signature->args = {{ArgBinding::Kind::kOperand, 0, {}}};
  signature->returns = {{}};
  signature->operands = signature->outputs = {geometry};
  signature->output_bytes = {0};
  return signature;
}

// The value that a root's storage held before the trace wrote it.
Value origin_of(const Trace& trace, Value value) {
  while (trace.node(value.node).kind == NodeKind::kCall) {
    const Node& node = trace.node(value.node);
    const size_t num_fresh = node.signature->outputs.size();
    if (value.output >= num_fresh) {
      value = trace.written_value(node, value.output - num_fresh);
    } else if (node.signature->op == &alias_op()) {
      value = trace.operands(node)[0].value;
    } else {
      break;
    }
  }
  return value;
}

bool covers(const Geometry& geometry, const Geometry& layout) {
  return geometry.offset == 0 && !geometry.has_bits() && geometry.is_dense() &&
         geometry.extent_bytes() == layout.extent_bytes();
}

} // namespace

TraceSlice extract(const Trace& trace, c10::ArrayRef<Value> values) {
  Copier copier(trace, /*with_data=*/true);
  TraceSlice slice;
  for (NodeId id : needed_nodes(trace, values)) {
    copier.copy(id);
    if (trace.node(id).kind == NodeKind::kDeviceData) {
      slice.leaves.push_back(trace.node(id).leaf_index);
    }
  }
  for (Value value : values) {
    slice.roots.push_back(copier.renumbered(value));
  }
  slice.trace = std::move(copier).result();
  return slice;
}

Trace copy_without_data(const Trace& trace) {
  Copier copier(trace, /*with_data=*/false);
  for (NodeId id = 0; id < trace.size(); ++id) {
    copier.copy(id);
  }
  return std::move(copier).result();
}

void add_root(TraceSlice& slice, Value value, const Geometry& geometry) {
  const bool is_whole = slice.trace.layout(value) == geometry;
  if (is_whole && std::find(slice.roots.begin(), slice.roots.end(), value) == slice.roots.end()) {
    slice.roots.push_back(value);
    return;
  }
  const View* view = is_whole ? nullptr : slice.trace.own(geometry);
  const Operand operand{value, view};
  slice.roots.push_back({slice.trace.add_call(alias_signature(geometry), operand, {}, 0, nullptr), 0});
}

std::vector<Geometry> input_geometries(const Trace& trace, c10::ArrayRef<Value> roots) {
  std::vector<Geometry> geometries;
  for (const Node& node : trace.nodes()) {
    if (node.kind == NodeKind::kDeviceData) {
      geometries.push_back(*node.layout);
    }
  }
  std::vector<bool> decided(geometries.size());
  for (Value root : roots) {
    const Geometry& geometry = trace.layout(root);
    const Node& origin = trace.node(origin_of(trace, root).node);
    if (origin.kind == NodeKind::kDeviceData && !decided[origin.leaf_index] && covers(geometry, *origin.layout)) {
      geometries[origin.leaf_index] = geometry;
      decided[origin.leaf_index] = true;
    }
  }
  return geometries;
}

} // namespace lazyplug
