#pragma once

#include <chrono>
#include <forward_list>
#include <list>

#include "common/intra_op_threads.h"
#include "lowering/computation.h"
#include "lowering/lowering_context.h"
#include "lowering/resolve_kernel.h"
#include "lowering/side_calls.h"

namespace lazyplug {

// Runs a lowered graph as a flat list of instructions over registers.
//
// Why not TorchScript's interpreter: it drops its registers when an op throws,
// and then results that do not depend on that op are lost too. The graph is
// nevertheless plain TorchScript, and says all that is to be known of it: it, or
// what is read back from its text, runs on torch::jit::Code, and here. With the
// flag `verify_torchscript` each run does (lowering/verify_torchscript.h).
class TorchScriptComputation final : public Computation {
 public:
  explicit TorchScriptComputation(LoweredGraph lowered);
  TorchScriptComputation(std::shared_ptr<torch::jit::Graph> graph, const FindOp& find_op);

  ComputationResult run(ComputationInputs inputs) const override;
  size_t num_ops() const override {
    return num_ops_;
  }
  std::string to_string() const override;

  const std::shared_ptr<torch::jit::Graph>& graph() const {
    return graph_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Registers = std::vector<c10::IValue>;
  struct OpError {
    std::exception_ptr error;
    NodeId node = Value::kNone; // that raised it
  };
  using Errors = std::vector<OpError>; // by register

  // A call that another thread may run meanwhile, see find_side_calls().
  struct SideCall;

  // One run: what it has computed so far.
  struct Frame {
    Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    ~Frame();

    Registers registers;
    Errors errors; // empty: none so far
    std::vector<UnexpectedStrides> unexpected;
    c10::Stack stack;
    int64_t scramble = 0; // the flag
    bool timed = false;
    Clock::time_point begin; // if it is timed
    bool reproduces = false; // the flag `debug`: what an op was given is kept until it has run
    c10::Stack operands;     // which that is
    IntraOpThreadsScope threads;
    float light_limit = 0; // with the threads that there were
    std::vector<KernelTime> times;
    SideThreads* side_threads = nullptr;
    std::list<SideCall> side_calls;      // that have not been awaited
    size_t side_calls_end = kNoSideCall; // the first instruction that needs one of them
  };

  // A read of a register, or of a constant. The last read takes the value, so
  // that memory is freed, or reused, as early as possible.
  struct Read {
    enum class Kind : uint8_t { kConstant, kCopy, kTake };
    Kind kind;
    uint32_t index;
  };
  struct Instruction {
    std::function<void(c10::Stack&)> run;
    std::function<void(c10::Stack&)> run_into; // see Kernel
    c10::SmallVector<uint32_t, 2> donors;      // inputs that die here, and lie as the output
    c10::SmallVector<Read, 4> reads;
    uint32_t first_output; // registers of a node's outputs are consecutive
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

  uint32_t add_register(const torch::jit::Value* value);
  Read& read_of(const torch::jit::Value* value);
  void add_nodes(const FindOp& find_op);
  void add_instruction(const torch::jit::Node* node, const FindOp& find_op);
  void mark_side_calls(c10::ArrayRef<const torch::jit::Node*> nodes);
  std::optional<uint32_t> first_unpacked(const torch::jit::Node& node) const;
  void add_promises(const torch::jit::Node& node, uint32_t first, Instruction& instruction);
  void name_calls();
  void add_constant(const torch::jit::Value& value, c10::IValue constant);
  bool fold_list(const torch::jit::Node& node);
  void mark_last_reads();
  void find_donors();

  ComputationResult run_instructions(ComputationInputs inputs) const;
  ComputationResult run_and_verify(ComputationInputs inputs) const;
  Errors leaf_errors(const ComputationInputs& inputs) const;
  Registers load(ComputationInputs inputs) const;
  // Notes errors.
  void try_to_execute(const Instruction& instruction, Frame& frame) const;
  void note_error(const Instruction& instruction, Frame& frame) const;
  void execute(const Instruction& instruction, Frame& frame) const;
  void load_operands(const Instruction& instruction, Frame& frame) const;
  // Waits for those that the instruction at this place needs.
  void await_side_calls(size_t place, Frame& frame) const;
  void await_first_side_call(Frame& frame) const;
  void offer_side_call(const Instruction& instruction, Frame& frame) const;
  void take_results(const Instruction& instruction, Frame& frame) const;
  static bool add_destination(const Instruction& instruction, c10::Stack& stack);
  static void keep_operands(const Instruction& instruction, Frame& frame);
  static void choose_threads(const Instruction& instruction, Frame& frame);
  void execute_timed(const Instruction& instruction, Frame& frame) const;
  static void keep_promises(const Instruction& instruction, Frame& frame);
  static at::Tensor
  arrange(at::Tensor result, const Instruction& instruction, const Geometry& promised, uint32_t fresh, Frame& frame);
  void execute_after_error(size_t next, Frame& frame) const;
  void run_spoiled(const Instruction& instruction, const OpError& error, Frame& frame) const;
  void run_in_part(const Instruction& instruction, Frame& frame) const;
  void spoil(const Instruction& instruction, const OpError& error, Errors& errors) const;
  // Of the inputs, or of some.
  OpError find_error(const Instruction& instruction, const Errors& errors, const std::vector<bool>& among = {}) const;
  static OpError
  describe_error(const std::exception_ptr& error, NodeId node, const torch::jit::Node* call, const char* name);
  ComputationResult collect(Frame& frame) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<Instruction> instructions_;
  std::vector<c10::IValue> constants_;
  std::vector<Read> roots_;
  uint32_t num_registers_ = 0;
  size_t max_stack_ = 0; // that a call needs
  size_t num_ops_ = 0;
  // What instructions point to.
  TypeGeometries geometries_;
  std::forward_list<std::string> names_;
  // The others only while compiling.
  std::vector<Read> reads_;                                            // by number of the value
  std::unordered_map<const torch::jit::Value*, uint32_t> fresh_lists_; // the first fresh output that each holds
  std::unordered_map<const torch::jit::Node*, SignaturePtr> checked_;
};

} // namespace lazyplug
