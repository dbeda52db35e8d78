#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <forward_list>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/execution/side_calls.h"
#include "lowering/nodes/resolve_kernel.h"

namespace lazyplug {

// What a node of a lowered graph does. Values are in registers, or are constants.
struct Instruction {
  // The last read of a register takes the value, so that memory is freed, or reused, as early as possible.
  struct Read {
    enum class Kind : uint8_t { kConstant, kCopy, kTake };
    Kind kind;
    uint32_t index;
  };

  std::function<void(c10::Stack&)> run;
  std::function<void(c10::Stack&)> run_into; // see Kernel
  c10::SmallVector<uint32_t, 2> donors;      // inputs that die here, and lie as the output
  c10::SmallVector<Read, 4> reads;
  uint32_t first_output = 0; // registers of a node's outputs are consecutive
  c10::SmallVector<bool, 4> used_outputs;
  // For each output, how it is promised to lie; null: it is not. Empty: none is.
  c10::SmallVector<const Geometry*, 2> promised;
  uint32_t first_fresh = 0;             // which output of the trace's node the first of these is
  c10::SmallVector<uint32_t, 2> writes; // registers that hold what it is to write
  std::vector<OutputInfo> outputs;      // see Kernel
  bool hands_on_memory = false;
  float work = 0;                         // see light_work()
  NodeId node = 0;                        // of the trace, that it belongs to
  const torch::jit::Node* call = nullptr; // that it belongs to, for error messages; null: an allocation
  const char* call_name = nullptr;        // of its op
  const OpInfo* reproducible = nullptr;   // the op that it calls, if another program may call it, too
  bool may_teach = false;                 // whether that is the trace's call
  size_t needed_by = kNoSideCall;         // see find_side_calls()
};

// A lowered graph, which must outlive it, as a flat list of them. The first registers are the graph's inputs.
struct Instructions {
  std::vector<Instruction> list;
  std::vector<c10::IValue> constants;
  std::vector<Instruction::Read> roots;
  uint32_t num_inputs = 0;
  uint32_t num_registers = 0;
  size_t max_stack = 0; // that a call needs
  size_t num_ops = 0;   // of the trace
  // What they point to.
  TypeGeometries geometries;
  std::forward_list<std::string> names;
};

// Arguments of the calls that are in `checked` are checked before each.
Instructions make_instructions(
    const torch::jit::Graph& graph,
    const FindOp& find_op,
    const std::unordered_map<const torch::jit::Node*, SignaturePtr>& checked);

} // namespace lazyplug
