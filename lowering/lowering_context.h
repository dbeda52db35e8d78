#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lowering/foreach_group.h"
#include "lowering/ir/graph.h"

namespace lazyplug {

// How a node of a lowered graph is run: `run` takes the first `num_inputs`
// inputs from the stack and leaves the outputs there.
struct Kernel {
  std::function<void(c10::Stack&)> run;
  size_t num_inputs = 0;
  const GraphNode* origin = nullptr; // the node it comes from
  // What becomes of memory if the node fails or cannot run: values made by
  // lazyplug::own that this call was to write, and still exist ...
  std::vector<const torch::jit::Value*> writes = {};
  // ... and whether this node is such an own, which hands memory on even if
  // what it holds has not been written as it should.
  bool hands_on_memory = false;
  // For each output, which fresh output of the node it is, whose layout the
  // signature promises; kNotFresh for those that it does not speak of. Empty: none is.
  std::vector<uint32_t> fresh = {};
  static constexpr uint32_t kNotFresh = static_cast<uint32_t>(-1);
};

// A graph as TorchScript. Its inputs are the leaves, then the scalars; its outputs
// the roots. `kernels` names, for each node that is not a constant, exactly the
// overload that is to be called.
struct LoweredGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  std::unordered_map<const torch::jit::Node*, Kernel> kernels;
  size_t num_ops = 0; // nodes without leaves
};

// Translates a graph, node by node, into TorchScript. Neighbouring _foreach_ calls
// become one node, unless the pass "foreach_groups" is disabled.
class LoweringContext {
 public:
  explicit LoweringContext(Graph& graph);

  LoweredGraph lower() &&;

 private:
  using Owned = std::vector<std::pair<GraphValue, torch::jit::Value*>>;
  using Nodes = std::vector<GraphNode*>;

  void add_inputs();
  void lower_node(GraphNode& node);
  void lower_empty(GraphNode& node);
  void lower_call(GraphNode& node);
  // Lowers the group that begins there, if there is one. Returns how many nodes.
  size_t lower_group(c10::ArrayRef<GraphNode*> nodes);
  void lower_group(const ForeachGroup& group);
  torch::jit::Value* group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists, Kernel& kernel);
  torch::jit::Value* group_numbers(const ForeachGroup& group, bool lists);
  void bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, torch::jit::Node* call);
  torch::jit::Value*& result_of(GraphValue value);

  // Makes each written value private, so that the call may write it in place.
  Owned own_written_values(const GraphNode& node);
  torch::jit::Value* own_value(const GraphNode& node, GraphValue value);
  std::vector<torch::jit::Value*> call_inputs(const GraphNode& node, const Owned& owned);
  std::vector<torch::jit::Value*> operands(const GraphNode& node, const Owned& owned);
  torch::jit::Value* operand(const GraphNode& node, const GraphUse& operand, const Owned& owned);
  torch::jit::Value*
  list(const GraphNode& node, c10::ArrayRef<torch::jit::Value*> elements, const c10::TypePtr& element);
  torch::jit::Value* generator(const GraphNode& node, torch::jit::Value* seed);
  void bind_outputs(GraphNode& node, torch::jit::Node* call, const Owned& owned);

  // The same for equal values: their nodes would be most of the graph.
  torch::jit::Value* constant(const c10::IValue& value);
  torch::jit::Node*
  add_node(const char* kind, c10::ArrayRef<torch::jit::Value*> inputs, size_t num_outputs, Kernel kernel);

  Graph& graph_;
  LoweredGraph lowered_;
  std::vector<std::vector<torch::jit::Value*>> results_; // by place of the node, by output
  std::vector<torch::jit::Value*> scalars_;
  std::unordered_map<Hash128, torch::jit::Value*> constants_;
};

} // namespace lazyplug
