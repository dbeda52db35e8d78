#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/tile_program.h"
#include "lowering/ir/graph.h"

namespace lazyplug {

// Neighbouring _foreach_ calls on the same tensors, such as an optimizer makes, as one tile program: each of its rows
// is what the calls do to one tensor of each list. Only ops that the CPU's kernels compute with elementary operations,
// so that the results are the same to the bit, in whatever groups.
class ForeachGroup {
 public:
  // A list of tensors. Its memory is read, is written in place, is new, or lives within a tile only.
  struct List {
    std::vector<GraphValue> first;      // what it holds before the group; empty: nothing, it is made
    std::vector<GraphValue> last;       // and after it
    std::vector<const GraphUse*> views; // instead of the values themselves; empty: of none. It is only read
    bool is_written = false;
    bool is_fresh() const {
      return first.empty();
    }
  };
  // A number of the program: a scalar of the graph, which may be a list of them, one for each row.
  struct Number {
    size_t scalar; // of the graph
    bool is_list;
  };

  explicit ForeachGroup(const Graph& graph) : graph_(&graph) {}

  // Takes the call in, unless it is none that fits. It comes after those that are in.
  bool add(GraphNode& node);

  bool empty() const {
    return nodes_.empty();
  }
  const std::vector<GraphNode*>& nodes() const {
    return nodes_;
  }
  size_t num_rows() const {
    return layouts_.size();
  }
  const std::vector<List>& lists() const {
    return lists_;
  }
  const std::vector<Number>& numbers() const {
    return numbers_;
  }
  // How often the nodes of the group read a value.
  size_t num_reads(GraphValue value) const;
  // The program on the lists `with_memory`, in their order; the others are its further slots. Its numbers are
  // those of the group, single ones before lists.
  kernels::Program program(const std::vector<uint8_t>& with_memory) const;

 private:
  struct Place {
    uint8_t list;
    uint32_t row;
  };
  struct ValueHash {
    size_t operator()(GraphValue value) const {
      return std::hash<const GraphNode*>()(value.node) * 31 + value.output;
    }
  };

  bool add_call(GraphNode& node, kernels::Opcode opcode);
  bool has_layouts(const Signature& signature, size_t num_lists);
  bool returns_layouts(const Signature& signature) const;
  std::optional<uint8_t> list_of(const GraphNode& node, size_t first_operand);
  std::optional<uint8_t> list_of_views(const GraphNode& node, size_t first_operand);
  bool is_own(GraphValue value) const;
  bool bind_numbers(const GraphNode& node, kernels::Instruction& instruction);
  uint8_t add_fresh(GraphNode& node);
  bool can_write(uint8_t list) const;
  void write(uint8_t list, GraphNode& node);
  uint8_t place_of_number(size_t index) const;

  const Graph* graph_;
  std::vector<GraphNode*> nodes_;
  std::vector<const Geometry*> layouts_; // of the rows
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  std::vector<List> lists_;
  std::vector<Number> numbers_;
  std::vector<kernels::Instruction> instructions_; // slots are lists
  std::unordered_map<GraphValue, Place, ValueHash> places_;
  std::unordered_map<GraphValue, size_t, ValueHash> reads_;
};

} // namespace lazyplug
