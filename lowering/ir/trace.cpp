#include "lowering/ir/trace.h"

#include "common/small_set.h"

namespace lazyplug {
namespace {

uint64_t first_with_view(c10::ArrayRef<Operand> operands, const View* view) {
  uint64_t i = 0;
  while (operands[i].view != view) {
    ++i;
  }
  return i;
}

} // namespace

Value Trace::add_device_data(at::Tensor data, LayoutPtr layout, DeviceDataInfo info) {
  Node& node = nodes_.emplace_back();
  node.kind = NodeKind::kDeviceData;
  node.layout = &layout->geometry;
  node.leaf_index = static_cast<uint32_t>(leaves_.size());
  hash_ = hash_combine(hash_combine(hash_, uint64_t{1}), layout->hash);
  leaves_.push_back(std::move(data));
  leaf_infos_.push_back(info);
  leaf_layouts_.push_back(std::move(layout));
  return {static_cast<NodeId>(nodes_.size() - 1), 0};
}

Value Trace::add_empty(Geometry layout) {
  Node node;
  node.kind = NodeKind::kEmpty;
  node.layout = own(std::move(layout));
  pending_bytes_ += node.layout->extent_bytes();
  hash_ = hash_combine(hash_combine(hash_, uint64_t{3}), *node.layout);
  nodes_.push_back(std::move(node));
  return {static_cast<NodeId>(nodes_.size() - 1), 0};
}

NodeId Trace::add_call(
    const SignaturePtr& signature,
    c10::ArrayRef<Operand> operands,
    c10::ArrayRef<c10::IValue> scalars,
    uint32_t num_written,
    const char* location) {
  Node& node = nodes_.emplace_back();
  node.signature = signature;
  node.location = location;
  node.num_outputs = static_cast<uint32_t>(signature->outputs.size()) + num_written;
  node.first_operand = static_cast<uint32_t>(operands_.size());
  node.num_operands = static_cast<uint32_t>(operands.size());
  node.first_scalar = static_cast<uint32_t>(scalars_.size());
  node.num_scalars = static_cast<uint32_t>(scalars.size());
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  scalars_.insert(scalars_.end(), scalars.begin(), scalars.end());
  hash_ = hash_combine(hash_, signature->hash);
  hash_operands(node);
  node.first_written = static_cast<uint32_t>(written_.size());
  if (num_written > 0) {
    add_written(node);
  }
  for (size_t bytes : signature->output_bytes) {
    pending_bytes_ += bytes;
  }
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Trace::hash_operands(const Node& node) {
  const auto operands = this->operands(node);
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    const uint64_t word = static_cast<uint64_t>(operand.value.node) << 32 |
                          static_cast<uint64_t>(operand.value.output) << 1 | (operand.view != nullptr);
    hash_ = hash_combine(hash_, word);
    if (operand.view) {
      hash_ = hash_combine(hash_, *operand.view);
      hash_ = hash_combine(hash_, first_with_view(operands, operand.view));
    }
  }
}

void Trace::reserve(Size size) {
  nodes_.reserve(size.nodes);
  operands_.reserve(size.operands);
  scalars_.reserve(size.scalars);
  leaves_.reserve(size.leaves);
  leaf_infos_.reserve(size.leaves);
  leaf_layouts_.reserve(size.leaves);
}

const View* Trace::own(Geometry geometry, uint32_t offset_scalar) {
  return &geometries_.emplace_front(std::move(geometry), offset_scalar);
}

uint32_t Trace::add_scalar(c10::IValue scalar) {
  scalars_.push_back(std::move(scalar));
  return static_cast<uint32_t>(scalars_.size() - 1);
}

void Trace::add_written(const Node& node) {
  SmallSet<uint64_t> seen;
  const auto operands = this->operands(node);
  for (size_t i = 0; i < operands.size(); ++i) {
    const Value value = operands[i].value;
    if (value.defined() && node.signature->writes_operand(i) &&
        seen.insert(static_cast<uint64_t>(value.node) << 32 | value.output)) {
      written_.push_back({value, &layout(value)});
    }
  }
}

std::vector<Value> Trace::written_values(const Node& node) const {
  std::vector<Value> values;
  if (node.kind == NodeKind::kCall) {
    for (size_t i = 0; i + node.signature->outputs.size() < node.num_outputs; ++i) {
      values.push_back(written_value(node, i));
    }
  }
  return values;
}

const Geometry& Trace::layout(Value value) const {
  const Node& node = nodes_[value.node];
  if (node.kind != NodeKind::kCall) {
    return *node.layout;
  }
  const auto& fresh = node.signature->outputs;
  return value.output < fresh.size() ? fresh[value.output]
                                     : *written_[node.first_written + value.output - fresh.size()].layout;
}

std::vector<NodeId> needed_nodes(const Trace& trace, c10::ArrayRef<Value> roots) {
  // Nodes stand after their operands already: mark backwards, list forwards.
  std::vector<bool> needed(trace.size());
  for (Value root : roots) {
    needed[root.node] = true;
  }
  for (NodeId id = static_cast<NodeId>(trace.size()); id-- > 0;) {
    if (!needed[id]) {
      continue;
    }
    for (const Operand& operand : trace.operands(trace.node(id))) {
      if (operand.value.defined()) {
        needed[operand.value.node] = true;
      }
    }
  }
  std::vector<NodeId> order;
  for (NodeId id = 0; id < trace.size(); ++id) {
    if (needed[id]) {
      order.push_back(id);
    }
  }
  return order;
}

} // namespace lazyplug
