#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lowering/foreach_group.h"
#include "lowering/ir.h"

namespace lazyplug {

// How a node of a lowered graph is run: `run` takes the first `num_inputs`
// inputs from the stack and leaves the outputs there.
struct Kernel {
  std::function<void(c10::Stack&)> run;
  size_t num_inputs = 0;
  NodeId origin = Value::kNone; // the IR node it comes from, for error messages
  // What becomes of memory if the node fails or cannot run: values made by
  // lazyplug::own that this call was to write, and still exist ...
  std::vector<const torch::jit::Value*> writes = {};
  // ... and whether this node is such an own, which hands memory on even if
  // what it holds has not been written as it should.
  bool hands_on_memory = false;
  // For each output, which fresh output of the IR node it is, whose layout the
  // signature promises; kNotFresh for those that it does not speak of. Empty: none is.
  std::vector<uint32_t> fresh = {};
  static constexpr uint32_t kNotFresh = static_cast<uint32_t>(-1);
};

// A trace as a TorchScript graph. Its inputs are the trace's leaves, then its
// scalars; its outputs the roots. `kernels` names, for each node that is not a
// constant, exactly the overload that was recorded. Nodes that no root depends
// on are left out.
struct LoweredGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  std::unordered_map<const torch::jit::Node*, Kernel> kernels;
  size_t num_ops = 0; // IR nodes that were lowered, without leaves
};

// Translates a trace, node by node, into a TorchScript graph.
class LoweringContext {
 public:
  explicit LoweringContext(const Trace& trace);

  LoweredGraph lower(c10::ArrayRef<Value> roots) &&;

 private:
  using Owned = std::vector<std::pair<Value, torch::jit::Value*>>;

  void add_inputs();
  void lower_node(NodeId id);
  void lower_empty(NodeId id);
  void lower_call(NodeId id);
  // Lowers the group that begins there, if there is one. Returns how many nodes.
  size_t lower_group(c10::ArrayRef<NodeId> nodes);
  void lower_group(const ForeachGroup& group);
  torch::jit::Value* group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists, Kernel& kernel);
  torch::jit::Value* group_numbers(const ForeachGroup& group, bool lists);
  void bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, torch::jit::Node* call);
  void bind(Value value, torch::jit::Value* result);
  void count_reads(c10::ArrayRef<NodeId> nodes, c10::ArrayRef<Value> roots);

  // Makes each written value private, so that the call may write it in place.
  Owned own_written_values(NodeId id);
  torch::jit::Value* own_value(NodeId id, Value value);
  std::vector<torch::jit::Value*> call_inputs(NodeId id, const Owned& owned);
  torch::jit::Value* operand(NodeId id, const Operand& operand, const Owned& owned);
  torch::jit::Value* operand_list(NodeId id, c10::ArrayRef<Operand> operands, const Owned& owned);
  torch::jit::Value* list(NodeId id, c10::ArrayRef<torch::jit::Value*> elements, const c10::TypePtr& element);
  torch::jit::Value* generator(NodeId id, torch::jit::Value* seed);
  void bind_outputs(NodeId id, torch::jit::Node* call, const Owned& owned);

  // The same for equal values: their nodes would be most of the graph.
  torch::jit::Value* constant(const c10::IValue& value);
  torch::jit::Node*
  add_node(const char* kind, c10::ArrayRef<torch::jit::Value*> inputs, size_t num_outputs, Kernel kernel);

  const Trace& trace_;
  LoweredGraph lowered_;
  std::vector<std::vector<torch::jit::Value*>> values_; // by node, by output
  std::vector<std::vector<uint32_t>> reads_;            // the same: how often by nodes and roots
  std::vector<torch::jit::Value*> scalars_;
  std::unordered_map<const Geometry*, torch::jit::Value*> views_;
  std::unordered_map<Hash128, torch::jit::Value*> constants_;
};

} // namespace lazyplug
