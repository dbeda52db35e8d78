#pragma once

#include <forward_list>
#include <list>
#include <memory>
#include <vector>

#include "lowering/ir/trace.h"

namespace lazyplug {

class Graph;
class GraphNode;
class GraphUse;

// An output of a node of a graph.
struct GraphValue {
  GraphNode* node = nullptr;
  uint32_t output = 0;

  bool defined() const {
    return node != nullptr;
  }
  bool operator==(const GraphValue& other) const {
    return node == other.node && output == other.output;
  }
  // The layout of the storage that holds the value.
  const Geometry& layout() const;
  // Who reads it: the first of a list, or null.
  const GraphUse* uses() const;
  bool has_uses() const {
    return uses() != nullptr;
  }
  size_t num_uses() const;
  bool is_root() const;
};

// A read of a value by a node, or by a root: a link in the list of that value's uses.
class GraphUse {
 public:
  GraphUse() = default;
  GraphUse(const GraphUse&) = delete;
  GraphUse& operator=(const GraphUse&) = delete;
  ~GraphUse() {
    unlink();
  }

  // Undefined: an operand that is None.
  GraphValue value() const {
    return value_;
  }
  // Null: the value itself.
  const View* view() const {
    return view_;
  }
  // The first operand of the same call that is the same tensor: often this one itself.
  uint32_t same_as() const {
    return same_as_;
  }
  // Who reads; null: a root.
  GraphNode* user() const {
    return user_;
  }
  bool is_root() const {
    return user_ == nullptr;
  }
  // Which of its operands, or of the roots.
  uint32_t index() const {
    return index_;
  }
  // Whether the user is to write the value.
  bool is_write() const;
  // The next use of the same value, in no order.
  const GraphUse* next() const {
    return next_;
  }

 private:
  friend class Graph;
  void link(GraphValue value);
  void unlink();

  GraphValue value_;
  const View* view_ = nullptr;
  uint32_t same_as_ = 0;
  GraphNode* user_ = nullptr;
  uint32_t index_ = 0;
  GraphUse* previous_ = nullptr;
  GraphUse* next_ = nullptr;
};

// A node of a graph: as those of traces, but its operands may change, and it may go.
class GraphNode {
 public:
  NodeKind kind() const {
    return kind_;
  }
  bool is_call() const {
    return kind_ == NodeKind::kCall;
  }
  // The node of the trace that it stands for: of its errors, its times, the user's line.
  NodeId id() const {
    return id_;
  }
  const char* location() const {
    return location_;
  }
  // Of a call.
  const SignaturePtr& signature() const {
    return signature_;
  }
  const OpInfo& op() const {
    return *signature_->op;
  }
  // Whether the signature is that of the trace's call, which its kernel may teach.
  bool is_as_recorded() const {
    return is_as_recorded_;
  }
  // Of a leaf: which one.
  uint32_t leaf_index() const {
    return leaf_index_;
  }
  // The fresh outputs, then one for each written value.
  uint32_t num_outputs() const {
    return static_cast<uint32_t>(uses_.size());
  }
  GraphValue output(uint32_t index) {
    return {this, index};
  }
  bool has_uses() const;
  // Its place in the order of the graph, as of the last Graph::number().
  size_t place() const {
    return number_;
  }
  size_t num_operands() const {
    return num_operands_;
  }
  const GraphUse& operand(size_t index) const {
    return operands_[index];
  }
  // Which of the graph's scalars the call takes.
  const std::vector<uint32_t>& scalars() const {
    return scalars_;
  }
  // The distinct values that the call writes, in the order of its operands.
  std::vector<GraphValue> written_values() const;
  GraphValue written_value(size_t index) const;
  const Geometry& layout_of(uint32_t output) const;
  const GraphUse* uses_of(uint32_t output) const {
    return uses_[output];
  }
  bool is_root(uint32_t output) const;

 private:
  friend class Graph;
  friend class GraphUse;

  void find_written();

  NodeKind kind_ = NodeKind::kCall;
  NodeId id_ = Value::kNone;
  SignaturePtr signature_;
  bool is_as_recorded_ = true;
  const Geometry* layout_ = nullptr; // of a leaf, or of memory
  // Of the values that it writes: an operand that is the value, and how it lies.
  std::vector<uint32_t> written_operands_;
  std::vector<const Geometry*> written_layouts_;
  uint32_t leaf_index_ = 0;
  const char* location_ = nullptr;
  std::vector<uint32_t> scalars_;
  std::unique_ptr<GraphUse[]> operands_;
  size_t num_operands_ = 0;
  std::vector<GraphUse*> uses_; // by output
  std::list<GraphNode>::iterator self_;
  size_t number_ = 0;
};

// What an operand is to be.
struct GraphOperand {
  GraphValue value;
  const View* view = nullptr; // lives as long as the graph
  uint32_t same_as = 0;       // may be its own index
};

// A program that can be changed, made of a trace to be compiled: nodes in the order in which they run, each with its
// uses. Replacing an operand, and erasing a node, take constant time. As in the trace, a write gives its storage a new
// value. Unlike there, the old one may be read later, two roots may be one value, and a root may be a leaf: whoever
// writes memory that somebody else needs, copies it when it runs.
class Graph {
 public:
  using Nodes = std::list<GraphNode>;

  Graph() = default;
  // Borrows geometries and the values of scalars: the trace must live on. Nodes that no root needs are there.
  Graph(const Trace& trace, c10::ArrayRef<Value> roots) : Graph(trace, roots, trace.size()) {}
  // Of the first nodes only.
  Graph(const Trace& trace, c10::ArrayRef<Value> roots, size_t num_nodes);
  Graph(Graph&&) = default;
  ~Graph();

  // In order.
  Nodes& nodes() {
    return nodes_;
  }
  const Nodes& nodes() const {
    return nodes_;
  }
  // Every leaf of the trace, needed or not.
  const std::vector<GraphNode*>& leaves() const {
    return leaves_;
  }
  // Numbers, seeds and offsets of moving views, as they were when the graph was made; they are inputs.
  const std::vector<c10::IValue>& scalars() const {
    return scalars_;
  }
  size_t num_roots() const {
    return roots_.size();
  }
  GraphValue root(size_t index) const {
    return roots_[index]->value();
  }

  // Appends. Geometries live as long as the graph.
  GraphNode& add_leaf(NodeId id, const Geometry* layout);
  GraphNode& add_empty(NodeId id, const Geometry* layout);
  GraphNode& add_call(
      NodeId id,
      SignaturePtr signature,
      c10::ArrayRef<GraphOperand> operands,
      std::vector<uint32_t> scalars,
      const char* location);
  uint32_t add_scalar(c10::IValue scalar) {
    scalars_.push_back(std::move(scalar));
    return static_cast<uint32_t>(scalars_.size() - 1);
  }
  void add_root(GraphValue value);
  const View* own(Geometry geometry, uint32_t offset_scalar = View::kFixed) {
    return &geometries_.emplace_front(std::move(geometry), offset_scalar);
  }

  // Tells each node its place.
  void number();
  // All that reads `value` reads `other` instead, which comes before.
  void replace_uses(GraphValue value, GraphValue other);
  // The call becomes another one of the same operands and scalars. Its outputs may not differ in number or layout.
  void replace_signature(GraphNode& node, SignaturePtr signature);
  // A node that nobody reads, and that is no leaf. Returns the one after it.
  Nodes::iterator erase(GraphNode& node);
  // Erases what no root depends on, except for leaves.
  void erase_unused();

 private:
  GraphNode& append(NodeKind kind, NodeId id);

  std::forward_list<View> geometries_;
  std::vector<SignaturePtr> former_signatures_; // layouts of values that were written may stand there
  std::vector<c10::IValue> scalars_;
  Nodes nodes_;
  std::vector<GraphNode*> leaves_;
  std::vector<std::unique_ptr<GraphUse>> roots_;
};

} // namespace lazyplug
