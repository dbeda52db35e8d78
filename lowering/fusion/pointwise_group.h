#pragma once

#include <optional>
#include <vector>

#include "kernels/pointwise.h"
#include "lowering/fusion/group_steps.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/graph.h"

namespace lazyplug {

// Calls that one tile program computes, element by element: all results have one shape, and lie alike.
//
// Or they are one element for each row: where the results have no gaps, sums and means over the last dimension may be
// among them, and if that dimension stays, what is computed from these, and what reads that for all elements of a row
// again. There, too, may be functions of whole rows, such as a softmax, and concatenations of rows, with the calls that
// make nothing but parts of these: they are computed as if they were of whole rows, of which only a window matters.
//
// Sums and means of all elements of a result that has no gaps may be among them, too: nobody in the group reads them.
class PointwiseGroup {
 public:
  // Something read: a value that comes from elsewhere, through a view or not.
  struct Input {
    GraphValue value;
    int64_t offset;         // elements from the start of its memory
    uint32_t offset_scalar; // as of a View
    c10::DimVector strides; // of the group's sizes
    kernels::Window window;

    bool moves() const {
      return offset_scalar != View::kFixed;
    }
  };

  static constexpr size_t kMaxNodes = 32;
  // Of rows, in elements: shorter ones take longer here than there.
  static constexpr int64_t kMinRow = 64;
  static constexpr int64_t kMinWindow = 64; // likewise of the parts of one

  // `functions`: whether it takes calls of find_function().
  explicit PointwiseGroup(const Graph& graph, bool functions = false) : graph_(&graph), takes_functions_(functions) {}

  // Takes the call in, unless it is none that fits. It comes after those that are in. `window`: it makes a part of a
  // concatenation that is to come, these columns of it, and nobody else reads that.
  bool add(GraphNode& node, kernels::Window window = {});
  // Of an empty group: its first call is a concatenation of rows, after those that make its parts.
  struct Part {
    GraphNode* node;
    kernels::Window window;
  };
  bool begin_join(GraphNode& join, c10::ArrayRef<Part> parts);
  // Whether the call concatenates rows.
  static bool is_join(const GraphNode& node);

  const std::vector<GraphNode*>& nodes() const {
    return nodes_;
  }
  kernels::Window window_of(const GraphNode* node) const {
    return windows_[index_of(node)];
  }
  bool contains(const GraphNode* node) const;
  // Its place among the nodes.
  size_t index_of(const GraphNode* node) const;
  // Whether it reads the value from elsewhere.
  bool reads(GraphValue value) const;

  // Of all results that are not one element for each row: sizes and strides. The dtype is that in which the group
  // computes: see kernels::computing_dtype().
  const Geometry& layout() const {
    return layout_;
  }
  const std::vector<Input>& inputs() const {
    return inputs_;
  }
  // A number of the program.
  struct Number {
    uint32_t scalar;       // which of the graph's it is
    c10::ScalarType dtype; // narrow floats that it is rounded to before, or undefined
  };
  const std::vector<Number>& numbers() const {
    return numbers_;
  }
  // Of rows: its last numbers, which are no scalars.
  const std::vector<int64_t>& literals() const {
    return literals_;
  }
  // A result that somebody else reads.
  struct Output {
    GraphValue value;
    std::vector<uint32_t> inputs; // that it depends on, in ascending order
    std::optional<uint32_t> old;  // if it is written in place: the input that holds what was there before
    bool is_for_row = false;      // one element for each row, whose dimension may be gone
    kernels::Total total = kernels::Total::kNone; // or this, of all elements
  };
  std::vector<Output> outputs() const;
  bool has_outputs() const;
  bool has_functions() const {
    return has_functions_;
  }
  bool has_rows() const {
    return has_rows_;
  }
  // Its slots with memory are the inputs, then the outputs.
  kernels::Program program(const std::vector<Output>& outputs) const;

 private:
  const PointwiseOp* find_row(const GraphNode& node) const;
  bool add_call(GraphNode& node, const PointwiseOp& op);
  bool add_join(const GraphNode& node);
  bool is_of_integers() const {
    return c10::isIntegralType(layout_.dtype, /*includeBool=*/false);
  }
  bool begin_layout(const GraphNode& node, const PointwiseOp& op, c10::ScalarType dtype);
  bool has_layout(const GraphNode& node, const PointwiseOp& op);
  bool has_total(const GraphNode& node) const;
  bool has_rows_of(int64_t min_length) const;
  c10::DimVector sizes_in_window() const;
  bool is_row_of(const Geometry& result) const;
  bool is_squeezed_row_of(const Geometry& result) const;
  void add_literal(int64_t number, GroupStep& step);
  bool add_correction(const c10::IValue& argument, GroupStep& step);
  bool can_reduce(const PointwiseOp& op) const;
  bool is_one_for_each_row(const GraphUse& operand) const;
  bool reads_row(const GraphNode& node) const;
  bool fits() const;
  uint32_t step_of(GraphValue value) const {
    return steps_of_[index_of(value.node)][value.output];
  }
  uint32_t add_step(GroupStep step);
  kernels::Opcode opcode_of(const PointwiseOp& op) const;
  bool can_compute(const PointwiseOp& op, kernels::Opcode opcode) const;
  bool reads_its_dtype(const GraphUse& operand, const GroupStep& step) const;
  bool loses_bits_of_nan(const GraphUse& operand, const GroupStep& step) const;
  static bool casts_number(const GroupStep& step);
  uint32_t add_narrowed(GroupStep step);
  uint32_t add_rounding(GroupStep::Source source);
  void add_layer_norm(GroupStep step);
  GroupStep::Source spread(GroupStep::Source source);
  bool rounds_by_place(const GroupStep& step) const;
  // `arg` is a character of PointwiseOp::args.
  bool add_source(const GraphUse& operand, char arg, GroupStep& step);
  bool add_number(uint32_t scalar, char arg, GroupStep& step);
  std::optional<GroupStep::Source> find_source(const GraphUse& operand);
  bool is_read_outside(const GraphNode& node, uint32_t output) const;
  std::optional<uint32_t> written_input(const GraphNode& node) const;

  const Graph* graph_;
  bool takes_functions_;
  bool has_functions_ = false;
  bool has_rows_ = false;
  // Of the call that is being added: whether it makes one element for each row, in which dtype it computes, and whether
  // it writes its first operand.
  bool is_for_row_ = false;
  c10::ScalarType call_dtype_ = c10::ScalarType::Undefined;
  bool is_in_place_ = false;
  kernels::Window window_;
  Geometry layout_;
  std::vector<GraphNode*> nodes_;
  std::vector<kernels::Window> windows_;                // by node
  std::vector<c10::SmallVector<uint32_t, 3>> steps_of_; // by node: for each of its results, the step that makes it
  std::vector<GroupStep> steps_;
  std::vector<Input> inputs_;
  std::vector<Number> numbers_;
  std::vector<int64_t> literals_;
};

} // namespace lazyplug
