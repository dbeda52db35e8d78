#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/fusion/foreach_group.h"
#include "lowering/fusion/schedule.h"
#include "lowering/ir/graph.h"
#include "lowering/nodes/resolve_kernel.h"

namespace lazyplug {

// A graph as TorchScript, whose inputs are the leaves, then the scalars, and whose outputs are the roots. It can be run
// as it is: see lowering/nodes/node_attributes.h.
struct LoweredGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  OpsByName ops; // that it calls
  // With the flag `verify_ir`: the signatures of calls, whose arguments are checked before each.
  std::unordered_map<const torch::jit::Node*, SignaturePtr> checked;
};

// Translates a graph into TorchScript, node by node, or group by group: of pointwise calls, unless the pass "fusion" is
// disabled, and of neighbouring _foreach_ calls, unless "foreach_groups" is; functions of this package's own are groups
// even then, so that they are ours wherever the graph runs.
class LoweringContext {
 public:
  explicit LoweringContext(Graph& graph);

  LoweredGraph lower() &&;

 private:
  // What a call writes, as it has it for itself.
  struct Owned {
    std::vector<torch::jit::Value*> values;
    std::map<std::pair<const GraphNode*, uint32_t>, torch::jit::Value*> by_value;
  };
  using Nodes = std::vector<GraphNode*>;

  std::vector<Step> schedule();
  void add_inputs();
  void lower_node(GraphNode& node);
  void lower_empty(GraphNode& node);
  void lower_call(GraphNode& node);
  torch::jit::Node* add_call(GraphNode& node, c10::ArrayRef<torch::jit::Value*> inputs);
  static bool has_independent_gradients(const GraphNode& node);
  void lower_gradients(GraphNode& node, std::vector<torch::jit::Value*> inputs);
  void lower_pointwise(const PointwiseGroup& group);
  // Lowers the group that begins there, if there is one. Returns how many nodes.
  size_t lower_foreach(c10::ArrayRef<Step> steps);
  void lower_foreach(const ForeachGroup& group);
  static void describe_group(torch::jit::Node& call, const Nodes& nodes);
  torch::jit::Value* group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists);
  torch::jit::Value* group_numbers(const ForeachGroup& group, bool lists);
  void bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, torch::jit::Node* call);
  torch::jit::Value*& result_of(GraphValue value);

  // Makes each written value private, so that the call may write it in place.
  Owned own_written_values(const GraphNode& node);
  torch::jit::Value* own_value(GraphValue value);
  std::vector<torch::jit::Value*> call_inputs(const GraphNode& node, const Owned& owned);
  std::vector<torch::jit::Value*> operands(const GraphNode& node, const Owned& owned);
  torch::jit::Value* operand(const GraphUse& operand, const Owned& owned);
  torch::jit::Value* list(c10::ArrayRef<torch::jit::Value*> elements, const c10::TypePtr& element);
  torch::jit::Value* generator(torch::jit::Value* seed);
  void bind_outputs(GraphNode& node, torch::jit::Node* call, const Owned& owned);

  // The same for equal values: their nodes would be most of the graph.
  torch::jit::Value* constant(const c10::IValue& value);
  torch::jit::Value* constant_list(c10::IntArrayRef list);
  const c10::TypePtr& type_of(const Geometry& geometry);
  torch::jit::Node* add_node(c10::Symbol kind, c10::ArrayRef<torch::jit::Value*> inputs, size_t num_outputs);

  Graph& graph_;
  LoweredGraph lowered_;
  const GraphNode* origin_ = nullptr;                            // the node that is being lowered
  std::vector<c10::SmallVector<torch::jit::Value*, 2>> results_; // by place of the node, by output
  std::vector<torch::jit::Value*> scalars_;
  std::unordered_map<Hash128, torch::jit::Value*> constants_;
  std::unordered_map<Hash128, c10::TypePtr> types_; // by geometry
};

} // namespace lazyplug
