#include "lowering/execution/instructions.h"

#include <algorithm>

#include "common/config.h"
#include "common/metrics.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/reproducer.h"
#include "lowering/ir/verify.h"
#include "lowering/nodes/node_attributes.h"
#include "lowering/passes/pass.h"

namespace lazyplug {
namespace {

// How many nodes of the graph it stands for.
size_t num_ops_of(const torch::jit::Node& node, const OpInfo* op) {
  return has_ops(node) ? ops_of(node).size() : op || node.kind() == runtime_ops().empty ? 1 : 0;
}

bool is_tensor(const torch::jit::Value& value) {
  return value.type()->isSubtypeOf(*c10::TensorType::get());
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

class InstructionMaker {
 public:
  using CheckedCalls = std::unordered_map<const torch::jit::Node*, SignaturePtr>;

  InstructionMaker(const torch::jit::Graph& graph, const FindOp& find_op, const CheckedCalls& checked)
      : graph_(graph), find_op_(find_op), checked_(checked) {}

  Instructions make() &&;

 private:
  using Read = Instruction::Read;

  uint32_t add_register(const torch::jit::Value* value);
  Read& read_of(const torch::jit::Value* value);
  void add_instruction(const torch::jit::Node* node);
  void mark_side_calls(c10::ArrayRef<const torch::jit::Node*> nodes);
  std::optional<uint32_t> first_unpacked(const torch::jit::Node& node) const;
  void add_promises(const torch::jit::Node& node, uint32_t first, Instruction& instruction);
  void name_calls();
  void add_constant(const torch::jit::Value& value, c10::IValue constant);
  bool fold_list(const torch::jit::Node& node);
  void mark_last_reads();
  void find_donors();

  const torch::jit::Graph& graph_;
  const FindOp& find_op_;
  const CheckedCalls& checked_;
  Instructions made_;
  std::vector<Read> reads_;                                            // by number of the value
  std::unordered_map<const torch::jit::Value*, uint32_t> fresh_lists_; // the first fresh output that each holds
};

Instructions InstructionMaker::make() && {
  for (const auto* input : graph_.inputs()) {
    add_register(input);
  }
  made_.num_inputs = made_.num_registers;
  const auto nodes = graph_.nodes();
  std::vector<const torch::jit::Node*> run;
  made_.list.reserve(std::distance(nodes.begin(), nodes.end()));
  for (const auto* node : nodes) {
    if (node->kind() == torch::jit::prim::Constant) {
      add_constant(*node->output(), *torch::jit::toIValue(node->output()));
    } else if (!fold_list(*node)) {
      add_instruction(node);
      run.push_back(node);
    }
  }
  for (const auto* output : graph_.outputs()) {
    made_.roots.push_back(read_of(output));
  }
  name_calls();
  mark_last_reads();
  find_donors();
  mark_side_calls(run);
  made_.geometries.freeze();
  return std::move(made_);
}

uint32_t InstructionMaker::add_register(const torch::jit::Value* value) {
  read_of(value) = {Read::Kind::kCopy, made_.num_registers};
  return made_.num_registers++;
}

Instruction::Read& InstructionMaker::read_of(const torch::jit::Value* value) {
  if (value->unique() >= reads_.size()) {
    reads_.resize(2 * value->unique() + 16);
  }
  return reads_[value->unique()];
}

void InstructionMaker::add_constant(const torch::jit::Value& value, c10::IValue constant) {
  read_of(&value) = {Read::Kind::kConstant, static_cast<uint32_t>(made_.constants.size())};
  made_.constants.push_back(std::move(constant));
}

// A list of constants is one, too. Nobody writes the arguments that are lists of numbers.
bool InstructionMaker::fold_list(const torch::jit::Node& node) {
  const auto is_constant = [](const torch::jit::Value* value) {
    return value->node()->kind() == torch::jit::prim::Constant && !is_tensor(*value);
  };
  if (node.kind() != torch::jit::prim::ListConstruct || node.inputs().empty() ||
      !std::all_of(node.inputs().begin(), node.inputs().end(), is_constant)) {
    return false;
  }
  c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
  for (const auto* element : node.inputs()) {
    list.push_back(made_.constants[read_of(element).index]);
  }
  add_constant(*node.output(), list);
  return true;
}

void InstructionMaker::add_instruction(const torch::jit::Node* node) {
  Instruction instruction;
  const OpInfo* op = nullptr;
  Kernel kernel = resolve_kernel(*node, find_op_, made_.geometries, op);
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
    instruction.call_name = op ? op->name().c_str() : made_.names.emplace_front(c10::Join(", ", ops_of(*node))).c_str();
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
  instruction.first_output = made_.num_registers;
  made_.max_stack = std::max({made_.max_stack, kernel.num_inputs, node->outputs().size()});
  for (const auto* output : node->outputs()) {
    instruction.used_outputs.push_back(output->hasUses());
    add_register(output);
  }
  made_.num_ops += num_ops_of(*node, op);
  made_.list.push_back(std::move(instruction));
}

// If it unpacks what a call returns anew: the first fresh output that is in the list.
std::optional<uint32_t> InstructionMaker::first_unpacked(const torch::jit::Node& node) const {
  const auto list = node.kind() == torch::jit::prim::ListUnpack ? fresh_lists_.find(node.input()) : fresh_lists_.end();
  return list == fresh_lists_.end() ? std::nullopt : std::make_optional(list->second);
}

// What a call returns anew lies as its type says. Lists are unpacked by a node of their own.
void InstructionMaker::add_promises(const torch::jit::Node& node, uint32_t first, Instruction& instruction) {
  instruction.first_fresh = first;
  for (const auto* output : node.outputs()) {
    instruction.promised.push_back(made_.geometries.find(*output->type()));
    first += instruction.promised.back() ? 1 : 0;
    if (output->type()->kind() == c10::TypeKind::ListType) {
      fresh_lists_[output] = first;
      first += output->hasUses() ? static_cast<uint32_t>(output->uses().front().user->outputs().size()) : 0;
    }
  }
}

// What prepares a call, or takes its results apart, speaks in its name.
void InstructionMaker::name_calls() {
  const auto end = made_.list.end();
  for (auto first = made_.list.begin(), next = first; first != end; first = next) {
    next = std::find_if(first, end, [&](const Instruction& other) { return other.node != first->node; });
    const auto call = std::find_if(first, next, [](const Instruction& other) { return other.call != nullptr; });
    for (auto instruction = first; call != next && instruction != next; ++instruction) {
      instruction->call = call->call;
      instruction->call_name = call->call_name;
    }
  }
}

void InstructionMaker::mark_last_reads() {
  std::vector<bool> read_later(made_.num_registers);
  const auto mark = [&](Read& read) {
    if (read.kind == Read::Kind::kCopy && !read_later[read.index]) {
      read_later[read.index] = true;
      read.kind = Read::Kind::kTake;
    }
  };
  for (size_t i = made_.roots.size(); i-- > 0;) {
    mark(made_.roots[i]);
  }
  for (size_t i = made_.list.size(); i-- > 0;) {
    auto& reads = made_.list[i].reads;
    for (size_t j = reads.size(); j-- > 0;) {
      mark(reads[j]);
    }
  }
}

// Outputs may take the memory of inputs that nobody else needs. Not complex ones: the CPU divides these with other bits
// in place.
void InstructionMaker::find_donors() {
  static Counter& changed = counter("PassChanged/destinations");
  if (!is_pass_enabled("destinations")) {
    return;
  }
  bool any_donor = false;
  for (Instruction& instruction : made_.list) {
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

void InstructionMaker::mark_side_calls(c10::ArrayRef<const torch::jit::Node*> nodes) {
  const int64_t least_us = config().side_calls.get();
  if (least_us < 0) {
    return;
  }
  const auto needed_by = find_side_calls(nodes, 1e-6 * static_cast<double>(least_us));
  for (size_t i = 0; i < needed_by.size(); ++i) {
    made_.list[i].needed_by = needed_by[i];
  }
}

} // namespace

Instructions make_instructions(
    const torch::jit::Graph& graph,
    const FindOp& find_op,
    const std::unordered_map<const torch::jit::Node*, SignaturePtr>& checked) {
  return InstructionMaker(graph, find_op, checked).make();
}

} // namespace lazyplug
