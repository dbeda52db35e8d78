#include "lowering/execution/instruction_run.h"

#include <c10/core/UndefinedTensorImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <thread>

#include "common/config.h"
#include "common/intra_op_threads.h"
#include "common/metrics.h"
#include "common/running_op.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/call_errors.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/execution/scramble.h"
#include "lowering/execution/warnings.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {
namespace {

using Clock = std::chrono::steady_clock;

// As many as keep two threads busy; each holds memory that it reads.
constexpr size_t kMaxSideCalls = 2;

void add_operand(const torch::jit::Value& value, std::vector<std::string>& operands) {
  if (value.node()->kind() == torch::jit::prim::ListConstruct) {
    for (const auto* element : value.node()->inputs()) {
      add_operand(*element, operands);
    }
  } else if (value.type()->kind() == c10::TypeKind::NoneType) {
    operands.emplace_back("None");
  } else if (value.type()->isSubtypeOf(*c10::TensorType::get())) {
    const auto geometry = geometry_of(*value.type());
    operands.push_back(geometry ? to_string(*geometry) : "Tensor");
  }
}

std::string describe(const torch::jit::Node* call, const char* name) {
  if (!call) {
    return "while running an allocation";
  }
  std::vector<std::string> operands;
  for (const auto* input : call->inputs()) {
    add_operand(*input, operands);
  }
  return describe_call(name, operands);
}

// A call that another thread may run meanwhile, see find_side_calls().
struct SideCall final : SideTask {
  SideCall(const Instruction& instruction, SideThreads& threads) : instruction(&instruction), threads(&threads) {}

  void run() noexcept override {
    static Counter& elsewhere = counter("SideCallsElsewhere");
    elsewhere.add(std::this_thread::get_id() == offered_by ? 0 : 1);
    threads->run_as_job([this] {
      const ExecutionGuard guard;
      const ShownWarningsMuted muted;
      const RunningOp running(instruction->call_name);
      try {
        instruction->run(stack);
      } catch (...) {
        error = std::current_exception();
      }
    });
  }

  const Instruction* instruction;
  SideThreads* threads;
  const std::thread::id offered_by = std::this_thread::get_id();
  c10::Stack stack; // its operands, then its results
  std::exception_ptr error;
};

// One run: what it has computed so far.
class InstructionRun {
 public:
  InstructionRun(const Instructions& program, ComputationInputs inputs);
  InstructionRun(const InstructionRun&) = delete;
  InstructionRun& operator=(const InstructionRun&) = delete;
  ~InstructionRun();

  ComputationResult run() &&;

 private:
  using Read = Instruction::Read;
  struct OpError {
    std::exception_ptr error;
    NodeId node = Value::kNone; // that raised it
  };

  void load(ComputationInputs inputs);
  // Notes errors.
  void try_to_execute(const Instruction& instruction);
  void note_error(const Instruction& instruction);
  void execute(const Instruction& instruction);
  void load_operands(const Instruction& instruction);
  // Waits for those that the instruction at this place needs.
  void await_side_calls(size_t place);
  void await_first_side_call();
  void offer_side_call(const Instruction& instruction);
  void take_results(const Instruction& instruction);
  bool add_destination(const Instruction& instruction);
  void keep_operands(const Instruction& instruction);
  void choose_threads(const Instruction& instruction);
  void execute_timed(const Instruction& instruction);
  void keep_promises(const Instruction& instruction);
  at::Tensor arrange(at::Tensor result, const Instruction& instruction, const Geometry& promised, uint32_t fresh);
  void execute_after_error(size_t next);
  void run_spoiled(const Instruction& instruction, const OpError& error);
  void run_in_part(const Instruction& instruction);
  void spoil(const Instruction& instruction, const OpError& error);
  // Of the inputs, or of some.
  OpError find_error(const Instruction& instruction, const std::vector<bool>& among = {}) const;
  static OpError
  describe_error(const std::exception_ptr& error, NodeId node, const torch::jit::Node* call, const char* name);
  ComputationResult collect();

  const Instructions& program_;
  std::vector<c10::IValue> registers_;
  std::vector<OpError> errors_; // by register; empty: none so far
  std::vector<UnexpectedStrides> unexpected_;
  c10::Stack stack_;
  const int64_t scramble_ = config().scramble.get();
  const bool timed_;
  const Clock::time_point begin_;                // if it is timed
  const bool reproduces_ = config().debug.get(); // what an op was given is kept until it has run
  c10::Stack operands_;                          // which that is
  IntraOpThreadsScope threads_;
  const float light_limit_ = light_limit(threads_.before()); // with the threads that there were
  std::vector<KernelTime> times_;
  SideThreads* const side_threads_;
  std::list<SideCall> side_calls_;      // that have not been awaited
  size_t side_calls_end_ = kNoSideCall; // the first instruction that needs one of them
};

InstructionRun::InstructionRun(const Instructions& program, ComputationInputs inputs)
    : program_(program),
      registers_(program.num_registers),
      errors_(inputs.errors.empty() ? 0 : program.num_registers),
      timed_(inputs.timed),
      begin_(timed_ ? Clock::now() : Clock::time_point()),
      side_threads_(timed_ || reproduces_ ? nullptr : inputs.side_threads) {
  stack_.reserve(program.max_stack);
  load(std::move(inputs));
}

InstructionRun::~InstructionRun() {
  for (SideCall& call : side_calls_) {
    side_threads_->await(call);
  }
}

ComputationResult InstructionRun::run() && {
  size_t next = 0;
  while (errors_.empty() && next < program_.list.size()) {
    const Instruction& instruction = program_.list[next];
    if (next >= side_calls_end_) {
      await_side_calls(next);
    } else {
      // Light calls take as many threads as they always do: one.
      const bool is_side_call =
          side_threads_ && instruction.needed_by != kNoSideCall && instruction.work > light_limit_;
      is_side_call ? offer_side_call(instruction) : try_to_execute(instruction);
      ++next;
    }
  }
  await_side_calls(kNoSideCall);
  execute_after_error(next);
  return collect();
}

void InstructionRun::load(ComputationInputs inputs) {
  TORCH_INTERNAL_ASSERT(
      inputs.leaves.size() + inputs.scalars.size() == program_.num_inputs,
      "computation called with ",
      inputs.leaves.size(),
      " leaves and ",
      inputs.scalars.size(),
      " scalars; it takes ",
      program_.num_inputs);
  for (size_t i = 0; i < inputs.errors.size(); ++i) {
    errors_[i].error = inputs.errors[i];
  }
  size_t next = 0;
  for (auto& leaf : inputs.leaves) {
    auto& destination = registers_[next++];
    if (leaf.defined()) {
      destination = std::move(leaf);
    }
  }
  for (auto& scalar : inputs.scalars) {
    registers_[next++] = std::move(scalar);
  }
}

void InstructionRun::try_to_execute(const Instruction& instruction) {
  try {
    timed_ ? execute_timed(instruction) : execute(instruction);
  } catch (const OutputErrors& failed) {
    take_results(instruction);
    errors_.resize(program_.num_registers);
    for (size_t i = 0; i < failed.errors.size(); ++i) {
      if (failed.errors[i]) {
        const OutputInfo& output = instruction.outputs[i];
        errors_[instruction.first_output + i] =
            describe_error(failed.errors[i], output.node, instruction.call, output.op.c_str());
      }
    }
  } catch (...) {
    note_error(instruction);
  }
}

// The one that is being handled.
void InstructionRun::note_error(const Instruction& instruction) {
  errors_.resize(program_.num_registers);
  const std::exception_ptr error = std::current_exception();
  if (const c10::Stack operands = std::exchange(operands_, {}); !operands.empty()) {
    add_reproducer(error, *instruction.reproducible, operands);
  }
  spoil(instruction, describe_error(error, instruction.node, instruction.call, instruction.call_name));
}

void InstructionRun::offer_side_call(const Instruction& instruction) {
  static Counter& offered = counter("SideCalls");
  if (side_calls_.size() == kMaxSideCalls) {
    await_first_side_call();
  }
  load_operands(instruction);
  SideCall& call = side_calls_.emplace_back(instruction, *side_threads_);
  call.stack.assign(std::make_move_iterator(stack_.begin()), std::make_move_iterator(stack_.end()));
  stack_.clear();
  side_calls_end_ = std::min(side_calls_end_, instruction.needed_by);
  offered.add();
  side_threads_->offer(call);
}

void InstructionRun::await_side_calls(size_t place) {
  const auto is_needed = [place](const SideCall& call) { return call.instruction->needed_by <= place; };
  while (std::any_of(side_calls_.begin(), side_calls_.end(), is_needed)) {
    await_first_side_call();
  }
  side_calls_end_ = kNoSideCall;
  for (const SideCall& call : side_calls_) {
    side_calls_end_ = std::min(side_calls_end_, call.instruction->needed_by);
  }
}

void InstructionRun::await_first_side_call() {
  SideCall& call = side_calls_.front();
  side_threads_->await(call);
  const Instruction& instruction = *call.instruction;
  stack_.assign(std::make_move_iterator(call.stack.begin()), std::make_move_iterator(call.stack.end()));
  const std::exception_ptr error = call.error;
  side_calls_.pop_front();
  try {
    if (error) {
      std::rethrow_exception(error);
    }
    take_results(instruction);
  } catch (...) {
    note_error(instruction);
  }
  stack_.clear();
}

void InstructionRun::load_operands(const Instruction& instruction) {
  for (const Read& read : instruction.reads) {
    switch (read.kind) {
      case Read::Kind::kConstant:
        stack_.push_back(program_.constants[read.index]);
        break;
      case Read::Kind::kCopy:
        stack_.push_back(registers_[read.index]);
        break;
      case Read::Kind::kTake:
        stack_.push_back(std::move(registers_[read.index]));
        break;
    }
  }
}

void InstructionRun::execute(const Instruction& instruction) {
  load_operands(instruction);
  choose_threads(instruction);
  const RunningOp running(instruction.call_name);
  if (add_destination(instruction)) {
    instruction.run_into(stack_);
  } else {
    keep_operands(instruction);
    instruction.run(stack_);
  }
  operands_.clear();
  take_results(instruction);
}

void InstructionRun::keep_operands(const Instruction& instruction) {
  if (reproduces_ && instruction.reproducible) {
    operands_ = copy_operands(stack_);
  }
}

void InstructionRun::take_results(const Instruction& instruction) {
  keep_promises(instruction);
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    if (instruction.used_outputs[i]) {
      registers_[instruction.first_output + i] = std::move(stack_[i]);
    }
  }
  stack_.clear();
}

// Whoever else holds a donor's memory would see it change.
bool InstructionRun::add_destination(const Instruction& instruction) {
  for (const uint32_t donor : instruction.donors) {
    if (!stack_[donor].isTensor()) {
      continue;
    }
    const at::Tensor& tensor = stack_[donor].toTensor();
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const Geometry& layout = *instruction.promised[0];
    if (tensor.use_count() == 1 && layout.matches(impl) && impl.unsafe_storage().use_count() == 1 &&
        impl.unsafe_storage().nbytes() == layout.extent_bytes() && impl.is_non_overlapping_and_dense_or_false()) {
      // The counts are read relaxed: what other threads did with the memory comes before.
      std::atomic_thread_fence(std::memory_order_acquire);
      stack_.emplace_back(tensor);
      return true;
    }
  }
  return false;
}

// One for light calls; see there.
void InstructionRun::choose_threads(const Instruction& instruction) {
  threads_.use(instruction.work <= light_limit_ ? 1 : threads_.before());
}

void InstructionRun::execute_timed(const Instruction& instruction) {
  const auto start = Clock::now();
  execute(instruction);
  const auto seconds = [](Clock::duration duration) { return std::chrono::duration<float>(duration).count(); };
  times_.push_back({instruction.node, instruction.call_name, seconds(start - begin_), seconds(Clock::now() - start)});
}

// Whoever reads a result takes it for granted that it lies as the signature says: autograd has asked for its strides
// already, and kernels have been chosen for them.
void InstructionRun::keep_promises(const Instruction& instruction) {
  uint32_t next_fresh = instruction.first_fresh;
  for (size_t i = 0; i < instruction.promised.size(); ++i) {
    if (!instruction.promised[i]) {
      continue;
    }
    const uint32_t fresh = next_fresh++;
    if (!instruction.used_outputs[i]) {
      continue;
    }
    const c10::TensorImpl* returned = stack_[i].unsafeToTensorImpl();
    const bool is_missing = returned == c10::UndefinedTensorImpl::singleton(); // who needs it, fails
    if (is_missing || (scramble_ == 0 && instruction.promised[i]->matches(*returned))) {
      continue;
    }
    at::Tensor result = std::move(stack_[i]).toTensor();
    stack_[i] = arrange(std::move(result), instruction, *instruction.promised[i], fresh);
  }
}

at::Tensor
InstructionRun::arrange(at::Tensor result, const Instruction& instruction, const Geometry& promised, uint32_t fresh) {
  if (instruction.may_teach && result.strides() != c10::IntArrayRef(promised.strides)) {
    unexpected_.push_back({instruction.node, fresh, c10::DimVector(result.strides())});
  }
  if (scramble_ != 0) {
    const Hash128 seed = hash_combine(hash_combine({}, static_cast<uint64_t>(scramble_)), instruction.node);
    result = scramble(result, hash_combine(seed, fresh).lo);
  }
  return ensure_layout(result, promised);
}

void InstructionRun::execute_after_error(size_t next) {
  for (; next < program_.list.size(); ++next) {
    const Instruction& instruction = program_.list[next];
    stack_.clear();
    if (const OpError error = find_error(instruction); error.error) {
      run_spoiled(instruction, error);
      continue;
    }
    try_to_execute(instruction);
  }
}

// An instruction that depends on what failed does not run, except that memory
// which was to be written goes its way, and that a kernel may know what does not depend on it.
void InstructionRun::run_spoiled(const Instruction& instruction, const OpError& error) {
  if (!instruction.outputs.empty()) {
    run_in_part(instruction);
    return;
  }
  if (instruction.hands_on_memory && registers_[instruction.reads[0].index].isTensor()) {
    try_to_execute(instruction);
  }
  spoil(instruction, error);
}

// What was to be replaced by something that depends on what failed, keeps its contents.
void InstructionRun::run_in_part(const Instruction& instruction) {
  std::vector<c10::IValue> inputs; // none is a constant
  for (const Read& read : instruction.reads) {
    inputs.push_back(registers_[read.index]);
  }
  for (const Read& read : instruction.reads) {
    if (errors_[read.index].error) {
      registers_[read.index] = c10::IValue();
    }
  }
  try_to_execute(instruction);
  for (size_t i = 0; i < instruction.reads.size(); ++i) {
    if (instruction.reads[i].kind == Read::Kind::kCopy) {
      registers_[instruction.reads[i].index] = inputs[i];
    }
  }
  for (size_t i = 0; i < instruction.outputs.size(); ++i) {
    const uint32_t output = instruction.first_output + i;
    const OpError error = find_error(instruction, instruction.outputs[i].inputs);
    if (error.error) {
      errors_[output] = error;
    }
    // The kernel itself may have failed.
    if (error.error || (errors_[output].error && !registers_[output].isTensor())) {
      const int64_t old = instruction.outputs[i].old;
      registers_[output] = old < 0 ? c10::IValue() : inputs[old];
    }
  }
}

void InstructionRun::spoil(const Instruction& instruction, const OpError& error) {
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    errors_[instruction.first_output + i] = error;
  }
  for (uint32_t memory : instruction.writes) {
    errors_[memory] = error;
  }
}

InstructionRun::OpError InstructionRun::find_error(const Instruction& instruction, const std::vector<bool>& among)
    const {
  for (size_t i = 0; i < instruction.reads.size(); ++i) {
    const Read& read = instruction.reads[i];
    const bool is_asked = among.empty() || (i < among.size() && among[i]);
    if (is_asked && read.kind != Read::Kind::kConstant && errors_[read.index].error) {
      return errors_[read.index];
    }
  }
  return {};
}

InstructionRun::OpError InstructionRun::describe_error(
    const std::exception_ptr& error,
    NodeId node,
    const torch::jit::Node* call,
    const char* name) {
  add_context(error, describe(call, name));
  return {error, node};
}

ComputationResult InstructionRun::collect() {
  ComputationResult result;
  result.unexpected = std::move(unexpected_);
  result.times = std::move(times_);
  result.outputs.reserve(program_.roots.size());
  for (const Read& root : program_.roots) {
    auto& output = result.outputs.emplace_back();
    auto& value = registers_[root.index];
    if (!errors_.empty()) {
      output.error = errors_[root.index].error;
      output.failed_node = errors_[root.index].node;
    }
    if (value.isTensor()) {
      output.tensor = root.kind == Read::Kind::kTake ? std::move(value).toTensor() : value.toTensor();
    }
  }
  return result;
}

} // namespace

ComputationResult run_instructions(const Instructions& program, ComputationInputs inputs) {
  return InstructionRun(program, std::move(inputs)).run();
}

} // namespace lazyplug
