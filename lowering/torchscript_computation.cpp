#include "lowering/torchscript_computation.h"

#include <c10/core/UndefinedTensorImpl.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/config.h"
#include "common/metrics.h"
#include "common/running_op.h"
#include "lowering/call_errors.h"
#include "lowering/execution_guard.h"
#include "lowering/ir/verify.h"
#include "lowering/light_calls.h"
#include "lowering/node_attributes.h"
#include "lowering/passes/pass.h"
#include "lowering/reproducer.h"
#include "lowering/runtime_ops.h"
#include "lowering/scramble.h"
#include "lowering/verify_torchscript.h"
#include "lowering/warnings.h"

namespace lazyplug {
namespace {

// How many nodes of the graph it stands for.
size_t num_ops_of(const torch::jit::Node& node, const OpInfo* op) {
  return has_ops(node) ? ops_of(node).size() : op || node.kind() == runtime_ops().empty ? 1 : 0;
}

bool is_tensor(const torch::jit::Value& value) {
  return value.type()->isSubtypeOf(*c10::TensorType::get());
}

void add_operand(const torch::jit::Value& value, std::vector<std::string>& operands) {
  if (value.node()->kind() == torch::jit::prim::ListConstruct) {
    for (const auto* element : value.node()->inputs()) {
      add_operand(*element, operands);
    }
  } else if (value.type()->kind() == c10::TypeKind::NoneType) {
    operands.emplace_back("None");
  } else if (is_tensor(value)) {
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

std::function<void(c10::Stack&)> check_before(std::function<void(c10::Stack&)> run, SignaturePtr signature) {
  return [run = std::move(run), signature = std::move(signature)](c10::Stack& stack) {
    verify_arguments(*signature, stack);
    run(stack);
  };
}

bool same_type(const c10::Type& a, const c10::Type& b) {
  return &a == &b || a == b;
}

FindOp find_among(const OpsByName& ops) {
  return [&ops](const OpKey& name) -> const OpInfo& { return *ops.at(name); };
}

// As many as keep two threads busy; each holds memory that it reads.
constexpr size_t kMaxSideCalls = 2;

} // namespace

struct TorchScriptComputation::SideCall final : SideTask {
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

TorchScriptComputation::Frame::Frame() = default;

TorchScriptComputation::Frame::~Frame() {
  for (SideCall& call : side_calls) {
    side_threads->await(call);
  }
}

TorchScriptComputation::TorchScriptComputation(LoweredGraph lowered)
    : graph_(std::move(lowered.graph)), checked_(std::move(lowered.checked)) {
  add_nodes(find_among(lowered.ops));
}

TorchScriptComputation::TorchScriptComputation(std::shared_ptr<torch::jit::Graph> graph, const FindOp& find_op)
    : graph_(std::move(graph)) {
  add_nodes(find_op);
}

void TorchScriptComputation::add_nodes(const FindOp& find_op) {
  for (const auto* input : graph_->inputs()) {
    add_register(input);
  }
  const auto nodes = graph_->nodes();
  std::vector<const torch::jit::Node*> run;
  instructions_.reserve(std::distance(nodes.begin(), nodes.end()));
  for (const auto* node : nodes) {
    if (node->kind() == torch::jit::prim::Constant) {
      add_constant(*node->output(), *torch::jit::toIValue(node->output()));
    } else if (!fold_list(*node)) {
      add_instruction(node, find_op);
      run.push_back(node);
    }
  }
  for (const auto* output : graph_->outputs()) {
    roots_.push_back(read_of(output));
  }
  name_calls();
  mark_last_reads();
  find_donors();
  mark_side_calls(run);
  reads_ = {};
  geometries_.freeze();
  fresh_lists_ = {};
  checked_ = {};
}

uint32_t TorchScriptComputation::add_register(const torch::jit::Value* value) {
  read_of(value) = {Read::Kind::kCopy, num_registers_};
  return num_registers_++;
}

TorchScriptComputation::Read& TorchScriptComputation::read_of(const torch::jit::Value* value) {
  if (value->unique() >= reads_.size()) {
    reads_.resize(2 * value->unique() + 16);
  }
  return reads_[value->unique()];
}

void TorchScriptComputation::add_constant(const torch::jit::Value& value, c10::IValue constant) {
  read_of(&value) = {Read::Kind::kConstant, static_cast<uint32_t>(constants_.size())};
  constants_.push_back(std::move(constant));
}

// A list of constants is one, too. Nobody writes the arguments that are lists of numbers.
bool TorchScriptComputation::fold_list(const torch::jit::Node& node) {
  const auto is_constant = [](const torch::jit::Value* value) {
    return value->node()->kind() == torch::jit::prim::Constant && !is_tensor(*value);
  };
  if (node.kind() != torch::jit::prim::ListConstruct || node.inputs().empty() ||
      !std::all_of(node.inputs().begin(), node.inputs().end(), is_constant)) {
    return false;
  }
  c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
  for (const auto* element : node.inputs()) {
    list.push_back(constants_[read_of(element).index]);
  }
  add_constant(*node.output(), list);
  return true;
}

void TorchScriptComputation::add_instruction(const torch::jit::Node* node, const FindOp& find_op) {
  Instruction instruction;
  const OpInfo* op = nullptr;
  Kernel kernel = resolve_kernel(*node, find_op, geometries_, op);
  instruction.run = std::move(kernel.run);
  instruction.run_into = std::move(kernel.run_into);
  instruction.outputs = std::move(kernel.outputs);
  if (const auto checked = checked_.find(node); checked != checked_.end()) {
    for (auto* run : {&instruction.run, &instruction.run_into}) {
      *run = *run ? check_before(std::move(*run), checked->second) : nullptr;
    }
  }
  instruction.node = origin_of(*node);
  instruction.may_teach = !is_replaced(*node);
  instruction.work = work_of(*node);
  instruction.hands_on_memory = node->kind() == runtime_ops().own;
  if (op && is_reproducible(*op)) {
    instruction.reproducible = op;
  }
  if (op || has_ops(*node)) {
    instruction.call = node;
    instruction.call_name = op ? op->name().c_str() : names_.emplace_front(c10::Join(", ", ops_of(*node))).c_str();
  }
  for (const auto* value : written_values(*node)) {
    instruction.writes.push_back(read_of(value).index);
  }
  for (size_t i = 0; i < kernel.num_inputs; ++i) {
    instruction.reads.push_back(read_of(node->input(i)));
  }
  const bool is_call = op || (has_ops(*node) && node->kind() != runtime_ops().tile_program);
  if (const auto first = is_call ? std::optional(0U) : first_unpacked(*node); first && !returns_views(*node)) {
    add_promises(*node, *first, instruction);
  }
  instruction.first_output = num_registers_;
  max_stack_ = std::max({max_stack_, kernel.num_inputs, node->outputs().size()});
  for (const auto* output : node->outputs()) {
    instruction.used_outputs.push_back(output->hasUses());
    add_register(output);
  }
  num_ops_ += num_ops_of(*node, op);
  instructions_.push_back(std::move(instruction));
}

// If it unpacks what a call returns anew: the first fresh output that is in the list.
std::optional<uint32_t> TorchScriptComputation::first_unpacked(const torch::jit::Node& node) const {
  const auto list = node.kind() == torch::jit::prim::ListUnpack ? fresh_lists_.find(node.input()) : fresh_lists_.end();
  return list == fresh_lists_.end() ? std::nullopt : std::make_optional(list->second);
}

// What a call returns anew lies as its type says. Lists are unpacked by a node of their own.
void TorchScriptComputation::add_promises(const torch::jit::Node& node, uint32_t first, Instruction& instruction) {
  instruction.first_fresh = first;
  for (const auto* output : node.outputs()) {
    instruction.promised.push_back(geometries_.find(*output->type()));
    first += instruction.promised.back() ? 1 : 0;
    if (output->type()->kind() == c10::TypeKind::ListType) {
      fresh_lists_[output] = first;
      first += output->hasUses() ? static_cast<uint32_t>(output->uses().front().user->outputs().size()) : 0;
    }
  }
}

// What prepares a call, or takes its results apart, speaks in its name.
void TorchScriptComputation::name_calls() {
  const auto end = instructions_.end();
  for (auto first = instructions_.begin(), next = first; first != end; first = next) {
    next = std::find_if(first, end, [&](const Instruction& other) { return other.node != first->node; });
    const auto call = std::find_if(first, next, [](const Instruction& other) { return other.call != nullptr; });
    for (auto instruction = first; call != next && instruction != next; ++instruction) {
      instruction->call = call->call;
      instruction->call_name = call->call_name;
    }
  }
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

// Outputs may take the memory of inputs that nobody else needs. Not complex ones: the CPU divides these with other bits
// in place.
void TorchScriptComputation::find_donors() {
  static Counter& changed = counter("PassChanged/destinations");
  if (!is_pass_enabled("destinations")) {
    return;
  }
  bool any_donor = false;
  for (Instruction& instruction : instructions_) {
    if (!instruction.run_into || instruction.promised.empty() || !instruction.promised[0] ||
        c10::isComplexType(instruction.promised[0]->dtype)) {
      continue;
    }
    for (uint32_t i = 0; i < instruction.reads.size(); ++i) {
      if (instruction.reads[i].kind == Read::Kind::kTake &&
          same_type(*instruction.call->input(i)->type(), *instruction.call->output()->type())) {
        instruction.donors.push_back(i);
        any_donor = true;
      }
    }
  }
  changed.add(any_donor ? 1 : 0);
}

void TorchScriptComputation::mark_side_calls(c10::ArrayRef<const torch::jit::Node*> nodes) {
  const int64_t least_us = config().side_calls.get();
  if (least_us < 0) {
    return;
  }
  const auto needed_by = find_side_calls(nodes, 1e-6 * static_cast<double>(least_us));
  for (size_t i = 0; i < needed_by.size(); ++i) {
    instructions_[i].needed_by = needed_by[i];
  }
}

ComputationResult TorchScriptComputation::run(ComputationInputs inputs) const {
  const ExecutionGuard guard;
  const ShownWarningsMuted muted;
  return config().verify_torchscript.get() ? run_and_verify(std::move(inputs)) : run_instructions(std::move(inputs));
}

// TorchScript's interpreter knows nothing of errors that spoil a part of the results, nor of promises.
ComputationResult TorchScriptComputation::run_and_verify(ComputationInputs inputs) const {
  static Counter& verified = counter("TorchScriptVerified");
  ComputationInputs copies = copy_inputs(inputs);
  ComputationResult result = run_instructions(std::move(inputs));
  const bool has_failed =
      std::any_of(result.outputs.begin(), result.outputs.end(), [](const ComputationOutput& output) {
        return output.error || !output.tensor.defined();
      });
  if (!has_failed && result.unexpected.empty()) {
    verify_torchscript(to_string(), std::move(copies), result.outputs);
    verified.add();
  }
  return result;
}

ComputationResult TorchScriptComputation::run_instructions(ComputationInputs inputs) const {
  Frame frame;
  frame.errors = leaf_errors(inputs);
  frame.timed = inputs.timed;
  frame.begin = inputs.timed ? Clock::now() : Clock::time_point();
  frame.reproduces = config().debug.get();
  frame.side_threads = frame.timed || frame.reproduces ? nullptr : inputs.side_threads;
  frame.light_limit = light_limit(frame.threads.before());
  frame.stack.reserve(max_stack_);
  frame.registers = load(std::move(inputs));
  frame.scramble = config().scramble.get();
  size_t next = 0;
  while (frame.errors.empty() && next < instructions_.size()) {
    const Instruction& instruction = instructions_[next];
    if (next >= frame.side_calls_end) {
      await_side_calls(next, frame);
    } else {
      const bool is_side_call = frame.side_threads && instruction.needed_by != kNoSideCall;
      is_side_call ? offer_side_call(instruction, frame) : try_to_execute(instruction, frame);
      ++next;
    }
  }
  await_side_calls(kNoSideCall, frame);
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

void TorchScriptComputation::try_to_execute(const Instruction& instruction, Frame& frame) const {
  try {
    frame.timed ? execute_timed(instruction, frame) : execute(instruction, frame);
  } catch (const OutputErrors& failed) {
    take_results(instruction, frame);
    frame.errors.resize(num_registers_);
    for (size_t i = 0; i < failed.errors.size(); ++i) {
      if (failed.errors[i]) {
        const OutputInfo& output = instruction.outputs[i];
        frame.errors[instruction.first_output + i] =
            describe_error(failed.errors[i], output.node, instruction.call, output.op.c_str());
      }
    }
  } catch (...) {
    note_error(instruction, frame);
  }
}

// The one that is being handled.
void TorchScriptComputation::note_error(const Instruction& instruction, Frame& frame) const {
  frame.errors.resize(num_registers_);
  const std::exception_ptr error = std::current_exception();
  if (const c10::Stack operands = std::exchange(frame.operands, {}); !operands.empty()) {
    add_reproducer(error, *instruction.reproducible, operands);
  }
  spoil(instruction, describe_error(error, instruction.node, instruction.call, instruction.call_name), frame.errors);
}

void TorchScriptComputation::offer_side_call(const Instruction& instruction, Frame& frame) const {
  static Counter& offered = counter("SideCalls");
  if (frame.side_calls.size() == kMaxSideCalls) {
    await_first_side_call(frame);
  }
  load_operands(instruction, frame);
  SideCall& call = frame.side_calls.emplace_back(instruction, *frame.side_threads);
  call.stack.assign(std::make_move_iterator(frame.stack.begin()), std::make_move_iterator(frame.stack.end()));
  frame.stack.clear();
  frame.side_calls_end = std::min(frame.side_calls_end, instruction.needed_by);
  offered.add();
  frame.side_threads->offer(call);
}

void TorchScriptComputation::await_side_calls(size_t place, Frame& frame) const {
  const auto is_needed = [place](const SideCall& call) { return call.instruction->needed_by <= place; };
  while (std::any_of(frame.side_calls.begin(), frame.side_calls.end(), is_needed)) {
    await_first_side_call(frame);
  }
  frame.side_calls_end = kNoSideCall;
  for (const SideCall& call : frame.side_calls) {
    frame.side_calls_end = std::min(frame.side_calls_end, call.instruction->needed_by);
  }
}

void TorchScriptComputation::await_first_side_call(Frame& frame) const {
  SideCall& call = frame.side_calls.front();
  frame.side_threads->await(call);
  const Instruction& instruction = *call.instruction;
  frame.stack.assign(std::make_move_iterator(call.stack.begin()), std::make_move_iterator(call.stack.end()));
  const std::exception_ptr error = call.error;
  frame.side_calls.pop_front();
  try {
    if (error) {
      std::rethrow_exception(error);
    }
    take_results(instruction, frame);
  } catch (...) {
    note_error(instruction, frame);
  }
  frame.stack.clear();
}

void TorchScriptComputation::load_operands(const Instruction& instruction, Frame& frame) const {
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
}

void TorchScriptComputation::execute(const Instruction& instruction, Frame& frame) const {
  auto& stack = frame.stack;
  load_operands(instruction, frame);
  choose_threads(instruction, frame);
  const RunningOp running(instruction.call_name);
  if (add_destination(instruction, stack)) {
    instruction.run_into(stack);
  } else {
    keep_operands(instruction, frame);
    instruction.run(stack);
  }
  frame.operands.clear();
  take_results(instruction, frame);
}

void TorchScriptComputation::keep_operands(const Instruction& instruction, Frame& frame) {
  if (frame.reproduces && instruction.reproducible) {
    frame.operands = copy_operands(frame.stack);
  }
}

void TorchScriptComputation::take_results(const Instruction& instruction, Frame& frame) const {
  keep_promises(instruction, frame);
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    if (instruction.used_outputs[i]) {
      frame.registers[instruction.first_output + i] = std::move(frame.stack[i]);
    }
  }
  frame.stack.clear();
}

// Whoever else holds a donor's memory would see it change.
bool TorchScriptComputation::add_destination(const Instruction& instruction, c10::Stack& stack) {
  for (const uint32_t donor : instruction.donors) {
    if (!stack[donor].isTensor()) {
      continue;
    }
    const at::Tensor& tensor = stack[donor].toTensor();
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const Geometry& layout = *instruction.promised[0];
    if (tensor.use_count() == 1 && layout.matches(impl) && impl.unsafe_storage().use_count() == 1 &&
        impl.unsafe_storage().nbytes() == layout.extent_bytes() && impl.is_non_overlapping_and_dense_or_false()) {
      // The counts are read relaxed: what other threads did with the memory comes before.
      std::atomic_thread_fence(std::memory_order_acquire);
      stack.emplace_back(tensor);
      return true;
    }
  }
  return false;
}

// One for light calls; see there.
void TorchScriptComputation::choose_threads(const Instruction& instruction, Frame& frame) {
  frame.threads.use(instruction.work <= frame.light_limit ? 1 : frame.threads.before());
}

void TorchScriptComputation::execute_timed(const Instruction& instruction, Frame& frame) const {
  const auto start = Clock::now();
  execute(instruction, frame);
  const auto seconds = [](Clock::duration duration) { return std::chrono::duration<float>(duration).count(); };
  frame.times.push_back(
      {instruction.node, instruction.call_name, seconds(start - frame.begin), seconds(Clock::now() - start)});
}

// Whoever reads a result takes it for granted that it lies as the signature says: autograd has asked for its strides
// already, and kernels have been chosen for them.
void TorchScriptComputation::keep_promises(const Instruction& instruction, Frame& frame) {
  uint32_t next_fresh = instruction.first_fresh;
  for (size_t i = 0; i < instruction.promised.size(); ++i) {
    if (!instruction.promised[i]) {
      continue;
    }
    const uint32_t fresh = next_fresh++;
    if (!instruction.used_outputs[i]) {
      continue;
    }
    const c10::TensorImpl* returned = frame.stack[i].unsafeToTensorImpl();
    const bool is_missing = returned == c10::UndefinedTensorImpl::singleton(); // who needs it, fails
    if (is_missing || (frame.scramble == 0 && instruction.promised[i]->matches(*returned))) {
      continue;
    }
    at::Tensor result = std::move(frame.stack[i]).toTensor();
    frame.stack[i] = arrange(std::move(result), instruction, *instruction.promised[i], fresh, frame);
  }
}

at::Tensor TorchScriptComputation::arrange(
    at::Tensor result,
    const Instruction& instruction,
    const Geometry& promised,
    uint32_t fresh,
    Frame& frame) {
  if (instruction.may_teach && result.strides() != c10::IntArrayRef(promised.strides)) {
    frame.unexpected.push_back({instruction.node, fresh, c10::DimVector(result.strides())});
  }
  if (frame.scramble != 0) {
    const Hash128 seed = hash_combine(hash_combine({}, static_cast<uint64_t>(frame.scramble)), instruction.node);
    result = scramble(result, hash_combine(seed, fresh).lo);
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
    try_to_execute(instruction, frame);
  }
}

// An instruction that depends on what failed does not run, except that memory
// which was to be written goes its way, and that a kernel may know what does not depend on it.
void TorchScriptComputation::run_spoiled(const Instruction& instruction, const OpError& error, Frame& frame) const {
  if (!instruction.outputs.empty()) {
    run_in_part(instruction, frame);
    return;
  }
  if (instruction.hands_on_memory && frame.registers[instruction.reads[0].index].isTensor()) {
    execute(instruction, frame);
  }
  spoil(instruction, error, frame.errors);
}

// What was to be replaced by something that depends on what failed, keeps its contents.
void TorchScriptComputation::run_in_part(const Instruction& instruction, Frame& frame) const {
  std::vector<c10::IValue> inputs; // none is a constant
  for (const Read& read : instruction.reads) {
    inputs.push_back(frame.registers[read.index]);
  }
  for (const Read& read : instruction.reads) {
    if (frame.errors[read.index].error) {
      frame.registers[read.index] = c10::IValue();
    }
  }
  try_to_execute(instruction, frame);
  for (size_t i = 0; i < instruction.reads.size(); ++i) {
    if (instruction.reads[i].kind == Read::Kind::kCopy) {
      frame.registers[instruction.reads[i].index] = inputs[i];
    }
  }
  for (size_t i = 0; i < instruction.outputs.size(); ++i) {
    const uint32_t output = instruction.first_output + i;
    if (const OpError error = find_error(instruction, frame.errors, instruction.outputs[i].inputs); error.error) {
      const int64_t old = instruction.outputs[i].old;
      frame.errors[output] = error;
      frame.registers[output] = old < 0 ? c10::IValue() : inputs[old];
    }
  }
}

void TorchScriptComputation::spoil(const Instruction& instruction, const OpError& error, Errors& errors) const {
  for (size_t i = 0; i < instruction.used_outputs.size(); ++i) {
    errors[instruction.first_output + i] = error;
  }
  for (uint32_t memory : instruction.writes) {
    errors[memory] = error;
  }
}

TorchScriptComputation::OpError TorchScriptComputation::find_error(
    const Instruction& instruction,
    const Errors& errors,
    const std::vector<bool>& among) const {
  for (size_t i = 0; i < instruction.reads.size(); ++i) {
    const Read& read = instruction.reads[i];
    const bool is_asked = among.empty() || (i < among.size() && among[i]);
    if (is_asked && read.kind != Read::Kind::kConstant && errors[read.index].error) {
      return errors[read.index];
    }
  }
  return {};
}

TorchScriptComputation::OpError TorchScriptComputation::describe_error(
    const std::exception_ptr& error,
    NodeId node,
    const torch::jit::Node* call,
    const char* name) {
  add_context(error, describe(call, name));
  return {error, node};
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
  return text_of(*graph_);
}

ComputationPtr compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Timer& time = timer("CompileTime");
  const TimerScope scope(time);
  Graph graph(trace, roots);
  run_passes(graph);
  return std::make_shared<TorchScriptComputation>(LoweringContext(graph).lower());
}

} // namespace lazyplug
