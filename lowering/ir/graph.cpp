#include "lowering/ir/graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lazyplug {

const Geometry& GraphValue::layout() const {
  return node->layout_of(output);
}

const GraphUse* GraphValue::uses() const {
  return node->uses_of(output);
}

size_t GraphValue::num_uses() const {
  size_t count = 0;
  for (const GraphUse* use = uses(); use; use = use->next()) {
    ++count;
  }
  return count;
}

bool GraphValue::is_root() const {
  return node->is_root(output);
}

// ---- uses ----

void GraphUse::link(GraphValue value) {
  unlink();
  value_ = value;
  if (!value.defined()) {
    return;
  }
  GraphUse*& first = value.node->uses_[value.output];
  next_ = first;
  if (next_) {
    next_->previous_ = this;
  }
  first = this;
}

void GraphUse::unlink() {
  if (!value_.defined()) {
    return;
  }
  (previous_ ? previous_->next_ : value_.node->uses_[value_.output]) = next_;
  if (next_) {
    next_->previous_ = previous_;
  }
  previous_ = next_ = nullptr;
  value_ = {};
}

bool GraphUse::is_write() const {
  return user_ && user_->signature()->writes_operand(index_);
}

// ---- nodes ----

bool GraphNode::has_uses() const {
  return std::any_of(uses_.begin(), uses_.end(), [](const GraphUse* first) { return first != nullptr; });
}

bool GraphNode::is_root(uint32_t output) const {
  for (const GraphUse* use = uses_[output]; use; use = use->next()) {
    if (use->is_root()) {
      return true;
    }
  }
  return false;
}

// Values may be replaced by others later, but one that is written never by another such.
void GraphNode::find_written() {
  written_operands_.clear();
  written_layouts_.clear();
  std::set<std::pair<const GraphNode*, uint32_t>> seen;
  for (uint32_t i = 0; i < num_operands_; ++i) {
    const GraphValue value = operands_[i].value();
    if (value.defined() && signature_->writes_operand(i) && seen.emplace(value.node, value.output).second) {
      written_operands_.push_back(i);
      written_layouts_.push_back(&value.layout());
    }
  }
}

std::vector<GraphValue> GraphNode::written_values() const {
  std::vector<GraphValue> values;
  values.reserve(written_operands_.size());
  for (size_t i = 0; i < written_operands_.size(); ++i) {
    values.push_back(written_value(i));
  }
  return values;
}

GraphValue GraphNode::written_value(size_t index) const {
  return operands_[written_operands_[index]].value();
}

const Geometry& GraphNode::layout_of(uint32_t output) const {
  if (!is_call()) {
    return *layout_;
  }
  const auto& fresh = signature_->outputs;
  return output < fresh.size() ? fresh[output] : *written_layouts_[output - fresh.size()];
}

// ---- graphs ----

namespace {

// Which operands are like which, asked for in order; there may be hundreds.
class FirstOperands {
 public:
  explicit FirstOperands(c10::ArrayRef<Operand> operands) : operands_(operands) {}

  // The first one with the same value and view.
  uint32_t like(uint32_t index) {
    const Operand& operand = operands_[index];
    if (operands_.size() > kFew) {
      const uint64_t value = static_cast<uint64_t>(operand.value.node) << 32 | operand.value.output;
      return first_.try_emplace({value, operand.view}, index).first->second;
    }
    uint32_t first = 0;
    while (!(operands_[first].value == operand.value && operands_[first].view == operand.view)) {
      ++first;
    }
    return first;
  }

 private:
  static constexpr size_t kFew = 16;

  c10::ArrayRef<Operand> operands_;
  std::map<std::pair<uint64_t, const View*>, uint32_t> first_; // empty if there are few
};

} // namespace

Graph::Graph(const Trace& trace, c10::ArrayRef<Value> roots, size_t num_nodes) : scalars_(trace.all_scalars()) {
  std::vector<GraphNode*> made;
  std::vector<GraphOperand> operands;
  const auto find = [&](Value value) {
    return value.defined() ? GraphValue{made[value.node], value.output} : GraphValue();
  };
  for (NodeId id = 0; id < num_nodes; ++id) {
    const Node& node = trace.node(id);
    if (node.kind != NodeKind::kCall) {
      made.push_back(node.kind == NodeKind::kEmpty ? &add_empty(id, node.layout) : &add_leaf(id, node.layout));
      continue;
    }
    const auto recorded = trace.operands(node);
    operands.clear();
    FirstOperands first_operands(recorded);
    for (uint32_t i = 0; i < recorded.size(); ++i) {
      operands.push_back({find(recorded[i].value), recorded[i].view, first_operands.like(i)});
    }
    std::vector<uint32_t> scalars(node.num_scalars);
    for (uint32_t i = 0; i < node.num_scalars; ++i) {
      scalars[i] = node.first_scalar + i;
    }
    made.push_back(&add_call(id, node.signature, operands, std::move(scalars), node.location));
  }
  for (Value root : roots) {
    add_root(find(root));
  }
}

// From the end: nodes give up their uses of earlier ones.
Graph::~Graph() {
  roots_.clear();
  while (!nodes_.empty()) {
    nodes_.pop_back();
  }
}

void Graph::number() {
  size_t next = 0;
  for (GraphNode& node : nodes_) {
    node.number_ = next++;
  }
}

GraphNode& Graph::append(NodeKind kind, NodeId id) {
  GraphNode& node = nodes_.emplace_back();
  node.self_ = std::prev(nodes_.end());
  node.kind_ = kind;
  node.id_ = id;
  return node;
}

GraphNode& Graph::add_leaf(NodeId id, const Geometry* layout) {
  GraphNode& node = append(NodeKind::kDeviceData, id);
  node.layout_ = layout;
  node.leaf_index_ = static_cast<uint32_t>(leaves_.size());
  node.uses_.resize(1);
  leaves_.push_back(&node);
  return node;
}

GraphNode& Graph::add_empty(NodeId id, const Geometry* layout) {
  GraphNode& node = append(NodeKind::kEmpty, id);
  node.layout_ = layout;
  node.uses_.resize(1);
  return node;
}

GraphNode& Graph::add_call(
    NodeId id,
    SignaturePtr signature,
    c10::ArrayRef<GraphOperand> operands,
    std::vector<uint32_t> scalars,
    const char* location) {
  GraphNode& node = append(NodeKind::kCall, id);
  node.signature_ = std::move(signature);
  node.scalars_ = std::move(scalars);
  node.location_ = location;
  node.operands_ = std::make_unique<GraphUse[]>(operands.size());
  node.num_operands_ = operands.size();
  for (uint32_t i = 0; i < operands.size(); ++i) {
    GraphUse& use = node.operands_[i];
    use.user_ = &node;
    use.index_ = i;
    use.view_ = operands[i].view;
    use.same_as_ = operands[i].same_as;
    use.link(operands[i].value);
  }
  node.find_written();
  node.uses_.resize(node.signature_->outputs.size() + node.written_layouts_.size());
  return node;
}

void Graph::add_root(GraphValue value) {
  auto& use = roots_.emplace_back(std::make_unique<GraphUse>());
  use->index_ = static_cast<uint32_t>(roots_.size() - 1);
  use->link(value);
}

void Graph::replace_uses(GraphValue value, GraphValue other) {
  while (GraphUse* use = value.node->uses_[value.output]) {
    use->link(other);
  }
}

void Graph::replace_signature(GraphNode& node, SignaturePtr signature) {
  const auto num_outputs = node.num_outputs();
  std::vector<const Geometry*> layouts;
  for (uint32_t i = 0; i < num_outputs; ++i) {
    layouts.push_back(&node.layout_of(i));
  }
  former_signatures_.push_back(std::exchange(node.signature_, std::move(signature)));
  node.is_as_recorded_ = false;
  node.find_written();
  TORCH_INTERNAL_ASSERT(node.signature_->outputs.size() + node.written_layouts_.size() == num_outputs);
  for (uint32_t i = 0; i < num_outputs; ++i) {
    TORCH_INTERNAL_ASSERT(node.layout_of(i) == *layouts[i], "a call is replaced by one with other results");
  }
}

Graph::Nodes::iterator Graph::erase(GraphNode& node) {
  TORCH_INTERNAL_ASSERT(!node.has_uses() && node.kind() != NodeKind::kDeviceData, "a node that is needed is erased");
  former_signatures_.push_back(node.signature_);
  return nodes_.erase(node.self_);
}

void Graph::erase_unused() {
  for (auto next = nodes_.end(); next != nodes_.begin();) {
    GraphNode& node = *--next;
    if (node.kind() != NodeKind::kDeviceData && !node.has_uses()) {
      next = erase(node);
    }
  }
}

} // namespace lazyplug
