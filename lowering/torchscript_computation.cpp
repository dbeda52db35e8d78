#include "lowering/torchscript_computation.h"

#include "common/metrics.h"
#include "common/running_op.h"
#include "lowering/execution_guard.h"
#include "lowering/warnings.h"

namespace lazyplug {
namespace {

std::string describe_call(const SignaturePtr& signature) {
  std::string text = "while running ";
  text += signature ? signature->op->name() + "(" : "an allocation";
  for (size_t i = 0; signature && i < signature->operands.size(); ++i) {
    text += (i == 0 ? "" : ", ") + to_string(signature->operands[i]);
  }
  return signature ? text + ")" : text;
}

} // namespace

TorchScriptComputation::TorchScriptComputation(LoweredGraph lowered, const Trace& trace)
    : graph_(std::move(lowered.graph)), num_ops_(lowered.num_ops) {
  for (const auto* input : graph_->inputs()) {
    add_register(input);
  }
  for (const auto* node : graph_->nodes()) {
    if (node->kind() == torch::jit::prim::Constant) {
      add_constant(node);
    } else {
      add_instruction(node, std::move(lowered.kernels.at(node)), trace);
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

void TorchScriptComputation::add_instruction(const torch::jit::Node* node, Kernel kernel, const Trace& trace) {
  Instruction instruction;
  instruction.run = std::move(kernel.run);
  instruction.node = kernel.origin;
  instruction.signature = trace.node(kernel.origin).signature;
  instruction.hands_on_memory = kernel.hands_on_memory;
  for (const auto* value : kernel.writes) {
    instruction.writes.push_back(reads_.at(value).index);
  }
  for (size_t i = 0; i < kernel.num_inputs; ++i) {
    instruction.reads.push_back(reads_.at(node->input(i)));
  }
  instruction.first_output = num_registers_;
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

std::vector<ComputationOutput> TorchScriptComputation::run(ComputationInputs inputs) const {
  const ExecutionGuard guard;
  const ShownWarningsMuted muted;
  Errors errors = leaf_errors(inputs);
  Registers registers = load(std::move(inputs));
  c10::Stack stack;
  if (!errors.empty()) {
    execute_after_error(0, registers, stack, errors);
    return collect(registers, errors);
  }
  for (size_t i = 0; i < instructions_.size(); ++i) {
    try {
      execute(instructions_[i], registers, stack);
    } catch (...) {
      errors.resize(num_registers_);
      spoil(instructions_[i], current_error(instructions_[i]), errors);
      execute_after_error(i + 1, registers, stack, errors);
      break;
    }
  }
  return collect(registers, errors);
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

void TorchScriptComputation::execute(const Instruction& instruction, Registers& registers, c10::Stack& stack) const {
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
  const RunningOp running(instruction.signature ? instruction.signature->op->name().c_str() : nullptr);
  instruction.run(stack);
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    if (instruction.used_outputs[i]) {
      registers[instruction.first_output + i] = std::move(stack[i]);
    }
  }
  stack.clear();
}

void TorchScriptComputation::execute_after_error(size_t next, Registers& registers, c10::Stack& stack, Errors& errors)
    const {
  for (; next < instructions_.size(); ++next) {
    const Instruction& instruction = instructions_[next];
    stack.clear();
    if (const OpError error = find_error(instruction, errors); error.error) {
      run_spoiled(instruction, error, registers, stack, errors);
      continue;
    }
    try {
      execute(instruction, registers, stack);
    } catch (...) {
      spoil(instruction, current_error(instruction), errors);
    }
  }
}

// An instruction that depends on what failed does not run, except that memory
// which was to be written goes its way.
void TorchScriptComputation::run_spoiled(
    const Instruction& instruction,
    const OpError& error,
    Registers& registers,
    c10::Stack& stack,
    Errors& errors) const {
  if (instruction.hands_on_memory && registers[instruction.reads[0].index].isTensor()) {
    execute(instruction, registers, stack);
  }
  spoil(instruction, error, errors);
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

std::vector<ComputationOutput> TorchScriptComputation::collect(Registers& registers, const Errors& errors) const {
  std::vector<ComputationOutput> outputs;
  outputs.reserve(roots_.size());
  for (const Read& root : roots_) {
    auto& output = outputs.emplace_back();
    auto& value = registers[root.index];
    if (!errors.empty()) {
      output.error = errors[root.index].error;
      output.failed_node = errors[root.index].node;
    }
    if (value.isTensor()) {
      output.tensor = root.kind == Read::Kind::kTake ? std::move(value).toTensor() : value.toTensor();
    }
  }
  return outputs;
}

std::string TorchScriptComputation::to_string() const {
  return graph_->toString(/*print_source_locations=*/false);
}

ComputationPtr compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Timer& time = timer("CompileTime");
  const TimerScope scope(time);
  return std::make_shared<TorchScriptComputation>(LoweringContext(trace).lower(roots), trace);
}

} // namespace lazyplug
