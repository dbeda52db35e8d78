#include "lowering/torchscript_computation.h"

#include <c10/core/UndefinedTensorImpl.h>

#include <algorithm>
#include <chrono>

#include "common/config.h"
#include "common/metrics.h"
#include "common/running_op.h"
#include "lowering/execution_guard.h"
#include "lowering/light_calls.h"
#include "lowering/passes/pass.h"
#include "lowering/runtime_ops.h"
#include "lowering/scramble.h"
#include "lowering/warnings.h"

namespace lazyplug {
namespace {

std::string describe_call(const SignaturePtr& signature) {
  std::string text = "while running ";
  text += signature ? signature->op->name() + "(" : "an allocation";
  for (size_t i = 0; signature && i < signature->operands.size(); ++i) {
    const Geometry& operand = signature->operands[i];
    text += i == 0 ? "" : ", ";
    text += operand.dtype == c10::ScalarType::Undefined ? "None" : to_string(operand);
  }
  return signature ? text + ")" : text;
}

} // namespace

TorchScriptComputation::TorchScriptComputation(LoweredGraph lowered)
    : graph_(std::move(lowered.graph)), num_ops_(lowered.num_ops) {
  for (const auto* input : graph_->inputs()) {
    add_register(input);
  }
  for (const auto* node : graph_->nodes()) {
    if (node->kind() == torch::jit::prim::Constant) {
      add_constant(node);
    } else {
      add_instruction(node, std::move(lowered.kernels.at(node)));
    }
  }
  for (const auto* output : graph_->outputs()) {
    roots_.push_back(reads_.at(output));
  }
  mark_last_reads();
  reads_.clear();
}

uint32_t TorchScriptComputation::add_register(const torch::jit::Value* value) {
  reads_[value] = {Read::Kind::kCopy, num_registers_};
  return num_registers_++;
}

void TorchScriptComputation::add_constant(const torch::jit::Node* node) {
  reads_[node->output()] = {Read::Kind::kConstant, static_cast<uint32_t>(constants_.size())};
  constants_.push_back(*torch::jit::toIValue(node->output()));
}

void TorchScriptComputation::add_instruction(const torch::jit::Node* node, Kernel kernel) {
  Instruction instruction;
  instruction.run = std::move(kernel.run);
  instruction.node = kernel.origin->id();
  instruction.signature = kernel.origin->signature();
  instruction.may_teach = kernel.origin->is_as_recorded();
  instruction.work = instruction.signature ? instruction.signature->work : 0;
  instruction.hands_on_memory = kernel.hands_on_memory;
  instruction.fresh = std::move(kernel.fresh);
  for (const auto* value : kernel.writes) {
    instruction.writes.push_back(reads_.at(value).index);
  }
  for (size_t i = 0; i < kernel.num_inputs; ++i) {
    instruction.reads.push_back(reads_.at(node->input(i)));
  }
  instruction.first_output = num_registers_;
  max_stack_ = std::max({max_stack_, kernel.num_inputs, node->outputs().size()});
  for (const auto* output : node->outputs()) {
    instruction.used_outputs.push_back(output->hasUses());
    add_register(output);
  }
  instructions_.push_back(std::move(instruction));
}

void TorchScriptComputation::mark_last_reads() {
  std::vector<bool> read_later(num_registers_);
  const auto mark = [&](Read& read) {
    if (read.kind == Read::Kind::kCopy && !read_later[read.index]) {
      read_later[read.index] = true;
      read.kind = Read::Kind::kTake;
    }
  };
  for (size_t i = roots_.size(); i-- > 0;) {
    mark(roots_[i]);
  }
  for (size_t i = instructions_.size(); i-- > 0;) {
    auto& reads = instructions_[i].reads;
    for (size_t j = reads.size(); j-- > 0;) {
      mark(reads[j]);
    }
  }
}

ComputationResult TorchScriptComputation::run(ComputationInputs inputs) const {
  const ExecutionGuard guard;
  const ShownWarningsMuted muted;
  Frame frame;
  frame.errors = leaf_errors(inputs);
  frame.timed = inputs.timed;
  frame.light_limit = light_limit(frame.threads.before());
  frame.stack.reserve(max_stack_);
  frame.registers = load(std::move(inputs));
  frame.scramble = config().scramble.get();
  size_t next = 0;
  while (frame.errors.empty() && next < instructions_.size()) {
    const Instruction& instruction = instructions_[next++];
    try {
      frame.timed ? execute_timed(instruction, frame) : execute(instruction, frame);
    } catch (...) {
      frame.errors.resize(num_registers_);
      spoil(instruction, current_error(instruction), frame.errors);
    }
  }
  execute_after_error(next, frame);
  return collect(frame);
}

TorchScriptComputation::Errors TorchScriptComputation::leaf_errors(const ComputationInputs& inputs) const {
  Errors errors(inputs.errors.empty() ? 0 : num_registers_);
  for (size_t i = 0; i < inputs.errors.size(); ++i) {
    errors[i].error = inputs.errors[i];
  }
  return errors;
}

TorchScriptComputation::Registers TorchScriptComputation::load(ComputationInputs inputs) const {
  Registers registers(num_registers_);
  TORCH_INTERNAL_ASSERT(
      inputs.leaves.size() + inputs.scalars.size() == graph_->inputs().size(),
      "computation called with ",
      inputs.leaves.size(),
      " leaves and ",
      inputs.scalars.size(),
      " scalars; it takes ",
      graph_->inputs().size());
  size_t next = 0;
  for (auto& leaf : inputs.leaves) {
    auto& destination = registers[next++];
    if (leaf.defined()) {
      destination = std::move(leaf);
    }
  }
  for (auto& scalar : inputs.scalars) {
    registers[next++] = std::move(scalar);
  }
  return registers;
}

void TorchScriptComputation::execute(const Instruction& instruction, Frame& frame) const {
  auto& registers = frame.registers;
  auto& stack = frame.stack;
  for (const Read& read : instruction.reads) {
    switch (read.kind) {
      case Read::Kind::kConstant:
        stack.push_back(constants_[read.index]);
        break;
      case Read::Kind::kCopy:
        stack.push_back(registers[read.index]);
        break;
      case Read::Kind::kTake:
        stack.push_back(std::move(registers[read.index]));
        break;
    }
  }
  choose_threads(instruction, frame);
  const RunningOp running(instruction.signature ? instruction.signature->op->name().c_str() : nullptr);
  instruction.run(stack);
  keep_promises(instruction, frame);
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    if (instruction.used_outputs[i]) {
      registers[instruction.first_output + i] = std::move(stack[i]);
    }
  }
  stack.clear();
}

// One for light calls; see there.
void TorchScriptComputation::choose_threads(const Instruction& instruction, Frame& frame) {
  frame.threads.use(instruction.work <= frame.light_limit ? 1 : frame.threads.before());
}

void TorchScriptComputation::execute_timed(const Instruction& instruction, Frame& frame) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  execute(instruction, frame);
  frame.times.push_back({instruction.node, std::chrono::duration<float>(Clock::now() - start).count()});
}

// Whoever reads a result takes it for granted that it lies as the signature says: autograd has asked for its strides
// already, and kernels have been chosen for them.
void TorchScriptComputation::keep_promises(const Instruction& instruction, Frame& frame) const {
  for (size_t i = 0; i < instruction.fresh.size(); ++i) {
    const uint32_t output = instruction.fresh[i];
    if (output == Kernel::kNotFresh || !instruction.used_outputs[i]) {
      continue;
    }
    const Geometry& promised = instruction.signature->outputs[output];
    const c10::TensorImpl* returned = frame.stack[i].unsafeToTensorImpl();
    const bool is_missing = returned == c10::UndefinedTensorImpl::singleton(); // who needs it, fails
    if (is_missing || (frame.scramble == 0 && promised.matches(*returned))) {
      continue;
    }
    frame.stack[i] = arrange(std::move(frame.stack[i]).toTensor(), instruction, output, frame);
  }
}

at::Tensor TorchScriptComputation::arrange(
    at::Tensor result,
    const Instruction& instruction,
    uint32_t output,
    Frame& frame) const {
  const Geometry& promised = instruction.signature->outputs[output];
  if (instruction.may_teach && result.strides() != c10::IntArrayRef(promised.strides)) {
    frame.unexpected.push_back({instruction.node, output, c10::DimVector(result.strides())});
  }
  if (frame.scramble != 0) {
    const Hash128 seed = hash_combine(hash_combine({}, static_cast<uint64_t>(frame.scramble)), instruction.node);
    result = scramble(result, hash_combine(seed, output).lo);
  }
  return ensure_layout(result, promised);
}

void TorchScriptComputation::execute_after_error(size_t next, Frame& frame) const {
  for (; next < instructions_.size(); ++next) {
    const Instruction& instruction = instructions_[next];
    frame.stack.clear();
    if (const OpError error = find_error(instruction, frame.errors); error.error) {
      run_spoiled(instruction, error, frame);
      continue;
    }
    try {
      execute(instruction, frame);
    } catch (...) {
      spoil(instruction, current_error(instruction), frame.errors);
    }
  }
}

// An instruction that depends on what failed does not run, except that memory
// which was to be written goes its way.
void TorchScriptComputation::run_spoiled(const Instruction& instruction, const OpError& error, Frame& frame) const {
  if (instruction.hands_on_memory && frame.registers[instruction.reads[0].index].isTensor()) {
    execute(instruction, frame);
  }
  spoil(instruction, error, frame.errors);
}

void TorchScriptComputation::spoil(const Instruction& instruction, const OpError& error, Errors& errors) const {
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    errors[instruction.first_output + i] = error;
  }
  for (uint32_t memory : instruction.writes) {
    errors[memory] = error;
  }
}

TorchScriptComputation::OpError TorchScriptComputation::find_error(const Instruction& instruction, const Errors& errors)
    const {
  for (const Read& read : instruction.reads) {
    if (read.kind != Read::Kind::kConstant && errors[read.index].error) {
      return errors[read.index];
    }
  }
  return {};
}

TorchScriptComputation::OpError TorchScriptComputation::current_error(const Instruction& instruction) const {
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(describe_call(instruction.signature));
    return {std::current_exception(), instruction.node};
  } catch (...) {
    return {std::current_exception(), instruction.node};
  }
}

ComputationResult TorchScriptComputation::collect(Frame& frame) const {
  ComputationResult result;
  result.unexpected = std::move(frame.unexpected);
  result.times = std::move(frame.times);
  result.outputs.reserve(roots_.size());
  for (const Read& root : roots_) {
    auto& output = result.outputs.emplace_back();
    auto& value = frame.registers[root.index];
    if (!frame.errors.empty()) {
      output.error = frame.errors[root.index].error;
      output.failed_node = frame.errors[root.index].node;
    }
    if (value.isTensor()) {
      output.tensor = root.kind == Read::Kind::kTake ? std::move(value).toTensor() : value.toTensor();
    }
  }
  return result;
}

std::string TorchScriptComputation::to_string() const {
  return graph_->toString(/*print_source_locations=*/false);
}

ComputationPtr compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Timer& time = timer("CompileTime");
  const TimerScope scope(time);
  Graph graph(trace, roots);
  run_passes(graph);
  return std::make_shared<TorchScriptComputation>(LoweringContext(graph).lower());
}

} // namespace lazyplug
