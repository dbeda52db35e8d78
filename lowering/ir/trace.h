#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <forward_list>
#include <vector>

#include "lowering/ir/signature.h"

namespace lazyplug {

using NodeId = uint32_t;

// An output of a node: all that a pending storage holds. Meaningful only
// together with the trace it belongs to.
struct Value {
  static constexpr NodeId kNone = static_cast<NodeId>(-1);
  NodeId node = kNone;
  uint32_t output = 0;

  bool defined() const {
    return node != kNone;
  }
  bool operator==(const Value& other) const {
    return node == other.node && output == other.output;
  }
};

// A read of a value: whole, or through a view of it. An undefined tensor is an
// operand without a value.
struct Operand {
  Value value;
  // Owned by the trace; null: the value itself. Operands of one call with one
  // view are one tensor.
  const View* view = nullptr;
};

enum class NodeKind : uint8_t {
  kDeviceData, // a leaf with memory: one output, `layout`
  kEmpty,      // uninitialised memory: one output, `layout`
  kCall,       // `signature`: its fresh outputs, then one for each written value
};

// A node of the IR. Immutable once it stands in a trace, which owns it. The
// spans point into the trace.
struct Node {
  NodeKind kind = NodeKind::kCall;
  uint32_t num_outputs = 1;
  uint32_t first_operand = 0;
  uint32_t num_operands = 0;
  uint32_t first_scalar = 0;
  uint32_t num_scalars = 0;
  uint32_t first_written = 0; // of a call: its first written value
  uint32_t leaf_index = 0;    // of a leaf: its place among the leaves
  const Geometry* layout = nullptr;
  SignaturePtr signature;
  const char* location = nullptr; // the user's line, interned, or null
};

// Whose data a leaf is.
struct DeviceDataInfo {
  static constexpr int64_t kNoTensor = -1;
  int64_t tensor_id = kNoTensor; // of the storage that it was taken from, or none
  bool read_only = false;        // a number, which other traces may read too
};

// A straight-line program in the order in which the user wrote it, and the data
// it starts from. Nodes only refer to earlier nodes, so that there is nothing
// to sort, and no reference counts: a trace is freed as a whole.
//
// Locking: none. The owner (backend/execution/device_context.h) serialises access.
class Trace {
 public:
  Trace() = default;
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;

  // A leaf that reads `data`, a CPU tensor that lies as `layout` says.
  Value add_device_data(at::Tensor data, LayoutPtr layout, DeviceDataInfo info = {});
  Value add_device_data(at::Tensor data, Geometry layout, DeviceDataInfo info = {}) {
    return add_device_data(std::move(data), c10::make_intrusive<SharedLayout>(std::move(layout)), info);
  }
  Value add_empty(Geometry layout);
  // The call writes `num_written` distinct values, in the order of its operands. Output number fresh + i of the node is
  // what becomes of the i-th of them.
  NodeId add_call(
      const SignaturePtr& signature,
      c10::ArrayRef<Operand> operands,
      c10::ArrayRef<c10::IValue> scalars,
      uint32_t num_written,
      const char* location);

  // How much there is of everything.
  struct Size {
    size_t nodes = 0;
    size_t operands = 0;
    size_t scalars = 0;
    size_t leaves = 0;
  };
  Size sizes() const {
    return {nodes_.size(), operands_.size(), scalars_.size(), leaves_.size()};
  }
  // Makes room.
  void reserve(Size size);

  // Keeps a geometry alive as long as the trace.
  const View* own(Geometry geometry, uint32_t offset_scalar = View::kFixed);
  // A scalar that belongs to no call: the offset of moving views.
  uint32_t add_scalar(c10::IValue scalar);

  bool empty() const {
    return nodes_.empty();
  }
  size_t size() const {
    return nodes_.size();
  }
  const std::vector<Node>& nodes() const {
    return nodes_;
  }
  const Node& node(NodeId id) const {
    return nodes_[id];
  }
  c10::ArrayRef<Operand> operands(const Node& node) const {
    return c10::ArrayRef<Operand>(operands_.data() + node.first_operand, node.num_operands);
  }
  c10::ArrayRef<c10::IValue> scalars(const Node& node) const {
    return c10::ArrayRef<c10::IValue>(scalars_.data() + node.first_scalar, node.num_scalars);
  }
  // The distinct values that a call writes, in the order of its operands.
  std::vector<Value> written_values(const Node& node) const;
  // One of them.
  Value written_value(const Node& node, size_t index) const {
    return written_[node.first_written + index].value;
  }
  // The layout of the storage that holds a value.
  const Geometry& layout(Value value) const;

  // Identifies the program: everything but the data and the scalars' values.
  Hash128 hash() const {
    return hash_;
  }
  // Bytes that the program will allocate.
  size_t pending_bytes() const {
    return pending_bytes_;
  }

  std::vector<at::Tensor>& leaves() {
    return leaves_;
  }
  const std::vector<at::Tensor>& leaves() const {
    return leaves_;
  }
  const DeviceDataInfo& leaf_info(size_t leaf) const {
    return leaf_infos_[leaf];
  }
  std::vector<c10::IValue>& all_scalars() {
    return scalars_;
  }
  const std::vector<c10::IValue>& all_scalars() const {
    return scalars_;
  }

 private:
  struct Written {
    Value value;
    const Geometry* layout;
  };

  void hash_operands(const Node& node);
  void add_written(const Node& node);

  std::vector<Node> nodes_;
  std::vector<Operand> operands_;
  std::vector<c10::IValue> scalars_;
  std::vector<at::Tensor> leaves_;
  std::vector<DeviceDataInfo> leaf_infos_;
  std::vector<LayoutPtr> leaf_layouts_;
  std::vector<Written> written_;
  std::forward_list<View> geometries_; // a list: addresses stay valid, and an empty one costs nothing
  Hash128 hash_;
  size_t pending_bytes_ = 0;
};

// The nodes that `roots` depend on, in the order of the trace.
std::vector<NodeId> needed_nodes(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
