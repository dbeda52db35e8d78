#pragma once

#include "common/intra_op_threads.h"
#include "lowering/computation.h"
#include "lowering/lowering_context.h"

namespace lazyplug {

// Runs a lowered graph as a flat list of instructions over registers.
//
// Why not TorchScript's interpreter: it drops its registers when an op throws,
// and then results that do not depend on that op are lost too. The graph is
// nevertheless plain TorchScript: `graph()` runs on torch::jit::Code.
class TorchScriptComputation final : public Computation {
 public:
  explicit TorchScriptComputation(LoweredGraph lowered);

  ComputationResult run(ComputationInputs inputs) const override;
  size_t num_ops() const override {
    return num_ops_;
  }
  std::string to_string() const override;

  const std::shared_ptr<torch::jit::Graph>& graph() const {
    return graph_;
  }

 private:
  using Registers = std::vector<c10::IValue>;
  struct OpError {
    std::exception_ptr error;
    NodeId node = Value::kNone; // that raised it
  };
  using Errors = std::vector<OpError>; // by register

  // One run: what it has computed so far.
  struct Frame {
    Registers registers;
    Errors errors; // empty: none so far
    std::vector<UnexpectedStrides> unexpected;
    c10::Stack stack;
    int64_t scramble = 0; // the flag
    bool timed = false;
    IntraOpThreadsScope threads;
    float light_limit = 0; // with the threads that there were
    std::vector<KernelTime> times;
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
    std::vector<Read> reads;
    uint32_t first_output; // registers of a node's outputs are consecutive
    std::vector<bool> used_outputs;
    std::vector<uint32_t> fresh;  // see Kernel::fresh
    std::vector<uint32_t> writes; // registers; see Kernel::writes
    bool hands_on_memory;
    float work;             // see light_work()
    NodeId node;            // of the trace, that it belongs to
    SignaturePtr signature; // of the call, for what it promises, and for error messages
    bool may_teach;         // whether that is the trace's signature
  };

  uint32_t add_register(const torch::jit::Value* value);
  void add_instruction(const torch::jit::Node* node, Kernel kernel);
  void add_constant(const torch::jit::Node* node);
  void mark_last_reads();

  Errors leaf_errors(const ComputationInputs& inputs) const;
  Registers load(ComputationInputs inputs) const;
  void execute(const Instruction& instruction, Frame& frame) const;
  static void choose_threads(const Instruction& instruction, Frame& frame);
  void execute_timed(const Instruction& instruction, Frame& frame) const;
  void keep_promises(const Instruction& instruction, Frame& frame) const;
  at::Tensor arrange(at::Tensor result, const Instruction& instruction, uint32_t output, Frame& frame) const;
  void execute_after_error(size_t next, Frame& frame) const;
  void run_spoiled(const Instruction& instruction, const OpError& error, Frame& frame) const;
  void spoil(const Instruction& instruction, const OpError& error, Errors& errors) const;
  OpError find_error(const Instruction& instruction, const Errors& errors) const;
  OpError current_error(const Instruction& instruction) const;
  ComputationResult collect(Frame& frame) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<Instruction> instructions_;
  std::vector<c10::IValue> constants_;
  std::vector<Read> roots_;
  uint32_t num_registers_ = 0;
  size_t max_stack_ = 0; // that a call needs
  size_t num_ops_ = 0;
  std::unordered_map<const torch::jit::Value*, Read> reads_; // only while compiling
};

} // namespace lazyplug
