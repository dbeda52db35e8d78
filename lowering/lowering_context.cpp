#include "lowering/lowering_context.h"

#include <algorithm>
#include <optional>

#include "common/config.h"
#include "common/metrics.h"
#include "lowering/calls/function_kernel.h"
#include "lowering/calls/norm_gradient_kernel.h"
#include "lowering/calls/random_fill.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/nodes/node_attributes.h"
#include "lowering/nodes/pointwise_kernel.h"
#include "lowering/passes/pass.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;
using JitValue = torch::jit::Value;

c10::TypePtr scalar_type(const c10::IValue& scalar) {
  if (scalar.isDouble()) {
    return c10::FloatType::get();
  }
  if (scalar.isInt()) {
    return c10::IntType::get();
  }
  if (scalar.isIntList()) {
    return c10::ListType::ofInts();
  }
  if (scalar.isList()) {
    return c10::ListType::create(c10::NumberType::get());
  }
  // TorchScript finds no overload for a bool where a Scalar is wanted.
  return scalar.isBool() ? c10::TypePtr(c10::NumberType::get()) : c10::TypePtr(c10::ComplexType::get());
}

enum class ConstantTag : uint64_t { kNone, kBool, kInt, kInts };

Hash128 key_of(ConstantTag tag, uint64_t word) {
  return hash_combine(hash_combine({}, static_cast<uint64_t>(tag)), word);
}

Hash128 key_of(c10::IntArrayRef list) {
  return hash_words(list.data(), list.size(), key_of(ConstantTag::kInts, 0));
}

// Of kinds that are frequent: sizes, strides, flags.
std::optional<Hash128> key_of_constant(const c10::IValue& value) {
  if (value.isNone()) {
    return key_of(ConstantTag::kNone, 0);
  }
  if (value.isBool()) {
    return key_of(ConstantTag::kBool, value.toBool());
  }
  if (value.isInt()) {
    return key_of(ConstantTag::kInt, static_cast<uint64_t>(value.toInt()));
  }
  if (value.isIntList()) {
    return key_of(value.toIntVector());
  }
  return std::nullopt;
}

// The inputs through which a call reads what it writes.
std::vector<int64_t> written_inputs(const Signature& signature) {
  std::vector<int64_t> inputs;
  size_t operand = 0;
  for (size_t i = 0; i < signature.args.size(); ++i) {
    const ArgBinding& arg = signature.args[i];
    const size_t count = arg.kind == ArgBinding::Kind::kOperand       ? 1
                         : arg.kind == ArgBinding::Kind::kOperandList ? arg.count
                                                                      : 0;
    bool is_written = false;
    for (size_t end = operand + count; operand < end; ++operand) {
      is_written |= signature.writes_operand(operand);
    }
    if (is_written) {
      inputs.push_back(static_cast<int64_t>(i));
    }
  }
  return inputs;
}

Grouping enabled_grouping() {
  const int64_t fusion = config().fusion.get();
  if (fusion == 0 || !is_pass_enabled("fusion")) {
    return Grouping::kNone;
  }
  return fusion == 1 ? Grouping::kSeveral : fusion == 2 ? Grouping::kAll : Grouping::kFunctions;
}

} // namespace

LoweringContext::LoweringContext(Graph& graph) : graph_(graph) {
  lowered_.graph = std::make_shared<torch::jit::Graph>();
  graph.number();
  results_.resize(graph.nodes().size());
  add_inputs();
}

LoweredGraph LoweringContext::lower() && {
  const std::vector<Step> steps = schedule();
  for (size_t i = 0; i < steps.size();) {
    const size_t num_grouped = lower_foreach(c10::ArrayRef<Step>(steps).slice(i));
    if (num_grouped == 0) {
      steps[i].group ? lower_pointwise(*steps[i].group) : lower_node(*steps[i].node);
    }
    i += std::max<size_t>(num_grouped, 1);
  }
  for (size_t i = 0; i < graph_.num_roots(); ++i) {
    lowered_.graph->registerOutput(result_of(graph_.root(i)));
  }
  return std::move(lowered_);
}

std::vector<Step> LoweringContext::schedule() {
  static Timer& time = timer("PassTime/fusion");
  static Counter& changed = counter("PassChanged/fusion");
  const TimerScope scope(time);
  std::vector<Step> steps = make_schedule(graph_, enabled_grouping());
  const bool has_group =
      std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.group != nullptr; });
  changed.add(has_group ? 1 : 0);
  return steps;
}

void LoweringContext::add_inputs() {
  for (GraphNode* leaf : graph_.leaves()) {
    const GraphValue value = leaf->output(0);
    result_of(value) = lowered_.graph->addInput()->setType(type_of(value.layout()));
  }
  for (const c10::IValue& scalar : graph_.scalars()) {
    scalars_.push_back(lowered_.graph->addInput()->setType(scalar_type(scalar)));
  }
}

void LoweringContext::lower_node(GraphNode& node) {
  origin_ = &node;
  node.is_call() ? lower_call(node) : lower_empty(node);
}

void LoweringContext::lower_empty(GraphNode& node) {
  const Geometry& layout = node.layout_of(0);
  auto* empty = add_node(
      runtime_ops().empty,
      {constant(static_cast<int64_t>(layout.dtype)), constant_list(layout.sizes), constant_list(layout.strides)},
      1);
  result_of(node.output(0)) = empty->output()->setType(type_of(layout));
}

void LoweringContext::lower_call(GraphNode& node) {
  const OpInfo& op = node.op();
  const Owned owned = own_written_values(node);
  const auto inputs = call_inputs(node, owned);
  if (has_independent_gradients(node)) {
    lower_gradients(node, inputs);
  } else {
    auto* call = add_call(node, inputs);
    set_writes(*call, written_inputs(*node.signature()));
    bind_outputs(node, call, owned);
    if (config().verify_ir.get()) {
      lowered_.checked.emplace(call, node.signature());
    }
  }
  const OpInfo*& known = lowered_.ops[{op.symbol(), op.overload()}];
  TORCH_CHECK(
      !known || known == &op || !(known->is_retired() || op.is_retired()),
      op.name(),
      " has been deregistered since a call of it was recorded");
  known = &op;
}

JitNode* LoweringContext::add_call(GraphNode& node, c10::ArrayRef<JitValue*> inputs) {
  const OpInfo& op = node.op();
  const bool is_gradient = is_norm_gradient(op) && is_function_here(op);
  const auto ours = is_gradient ? std::optional(runtime_ops().norm_gradient) : random_fill_symbol(op);
  auto* call = add_node(ours.value_or(op.symbol()), inputs, op.num_returns());
  ours ? describe_group(*call, {&node}) : set_overload(*call, op.overload());
  set_work(*call, node.signature()->work);
  return call;
}

// The gradient of a convolution's input, and those of its weight and bias, are computed by kernels of their own, which
// may run side by side.
bool LoweringContext::has_independent_gradients(const GraphNode& node) {
  const auto& args = node.signature()->args;
  if (config().side_calls.get() < 0 || node.op().name() != "aten::convolution_backward" || node.num_outputs() < 2 ||
      !args.back().constant.isBoolList()) {
    return false;
  }
  return args.back().constant.toBoolList()[0] && node.uses_of(0) && node.uses_of(1);
}

void LoweringContext::lower_gradients(GraphNode& node, std::vector<JitValue*> inputs) {
  const auto mask = node.signature()->args.back().constant.toBoolList();
  const auto with_mask = [&](bool input, bool weight, bool bias) {
    inputs.back() = constant(c10::List<bool>({input, weight, bias}));
    return inputs;
  };
  auto* of_input = add_call(node, with_mask(true, false, false));
  auto* of_weight = add_call(node, with_mask(false, mask[1], mask[2]));
  bind_outputs(node, of_weight, {});
  for (size_t i = 0; i < of_input->outputs().size(); ++i) {
    of_input->output(i)->setType(of_weight->output(i)->type());
  }
  result_of(node.output(0)) = of_input->output(0);
}

void LoweringContext::lower_pointwise(const PointwiseGroup& group) {
  static Counter& groups = counter("FusedGroups");
  static Counter& nodes = counter("FusedNodes");
  origin_ = group.nodes().back(); // it cannot run before that is recorded: cuts are planned by such times
  const auto outputs = group.outputs();
  std::vector<JitValue*> inputs;
  for (const auto& input : group.inputs()) {
    inputs.push_back(result_of(input.value));
  }
  for (const auto& number : group.numbers()) {
    inputs.push_back(scalars_[number.scalar]);
  }
  for (const auto& input : group.inputs()) {
    if (input.moves()) {
      inputs.push_back(scalars_[input.offset_scalar]);
    }
  }
  auto* call = add_node(runtime_ops().pointwise, inputs, outputs.size());
  set_pointwise(*call, group, outputs);
  describe_group(*call, group.nodes());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GraphValue value = outputs[i].value;
    result_of(value) = call->output(i)->setType(type_of(value.layout()));
  }
  groups.add();
  nodes.add(group.nodes().size());
}

void LoweringContext::describe_group(JitNode& call, const Nodes& nodes) {
  std::vector<std::string> ops;
  float work = 0;
  for (const GraphNode* node : nodes) {
    ops.push_back(node->op().name());
    work += node->signature()->work;
  }
  set_ops(call, std::move(ops));
  set_work(call, work);
}

size_t LoweringContext::lower_foreach(c10::ArrayRef<Step> steps) {
  ForeachGroup group(graph_);
  size_t num_nodes = 0;
  const bool may_group = is_pass_enabled("foreach_groups");
  const auto is_function_alone = [&] {
    return num_nodes == 0 && steps[0].node->is_call() && is_function_here(steps[0].node->op());
  };
  while (num_nodes < steps.size() && steps[num_nodes].node && (may_group || is_function_alone()) &&
         group.add(*steps[num_nodes].node)) {
    ++num_nodes;
  }
  if (num_nodes > 0) {
    lower_foreach(group);
  }
  return num_nodes;
}

void LoweringContext::lower_foreach(const ForeachGroup& group) {
  origin_ = group.nodes().front();
  std::vector<uint8_t> given;
  std::vector<uint8_t> fresh;
  for (uint8_t i = 0; i < group.lists().size(); ++i) {
    const auto& list = group.lists()[i];
    const auto is_read_later = [&](GraphValue value) { return value.num_uses() > group.num_reads(value); };
    if (!list.is_fresh()) {
      given.push_back(i);
    } else if (std::any_of(list.last.begin(), list.last.end(), is_read_later)) {
      fresh.push_back(i);
    }
  }
  std::vector<uint8_t> with_memory = given;
  with_memory.insert(with_memory.end(), fresh.begin(), fresh.end());
  const kernels::Program program = group.program(with_memory);
  auto* call = add_node(
      runtime_ops().tile_program,
      {group_tensors(group, given),
       group_numbers(group, /*lists=*/false),
       group_numbers(group, /*lists=*/true),
       constant(static_cast<int64_t>(group.num_rows())),
       constant(kernels::to_string(program))},
      1);
  describe_group(*call, group.nodes());
  set_writes(*call, {0});
  call->output()->setType(c10::ListType::ofTensors());
  bind_fresh(group, fresh, call);
}

// Those that the group is given, private if it writes them.
JitValue* LoweringContext::group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists) {
  std::vector<JitValue*> tensors;
  for (const uint8_t index : lists) {
    const auto& list = group.lists()[index];
    for (size_t row = 0; row < group.num_rows(); ++row) {
      const GraphValue value = list.first[row];
      JitValue* tensor = list.is_written      ? own_value(value)
                         : list.views.empty() ? result_of(value)
                                              : operand(*list.views[row], {});
      tensors.push_back(tensor);
      if (list.is_written) {
        result_of(list.last[row]) = tensor;
      }
    }
  }
  return list(tensors, c10::TensorType::get());
}

JitValue* LoweringContext::group_numbers(const ForeachGroup& group, bool lists) {
  std::vector<JitValue*> numbers;
  for (const auto& number : group.numbers()) {
    if (number.is_list == lists) {
      numbers.push_back(scalars_[number.scalar]);
    }
  }
  const c10::TypePtr number = c10::NumberType::get();
  return list(numbers, lists ? c10::TypePtr(c10::ListType::create(number)) : number);
}

void LoweringContext::bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, JitNode* call) {
  if (lists.empty()) {
    return;
  }
  auto* unpack = add_node(torch::jit::prim::ListUnpack, {call->output()}, lists.size() * group.num_rows());
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto& last = group.lists()[lists[i]].last;
    for (size_t row = 0; row < group.num_rows(); ++row) {
      auto* result = unpack->output(i * group.num_rows() + row);
      result_of(last[row]) = result->setType(type_of(last[row].layout()));
    }
  }
}

JitValue*& LoweringContext::result_of(GraphValue value) {
  auto& results = results_[value.node->place()];
  if (results.empty()) {
    results.resize(value.node->num_outputs());
  }
  return results[value.output];
}

LoweringContext::Owned LoweringContext::own_written_values(const GraphNode& node) {
  Owned owned;
  for (GraphValue value : node.written_values()) {
    owned.values.push_back(own_value(value));
    owned.by_value.emplace(std::pair(value.node, value.output), owned.values.back());
  }
  return owned;
}

JitValue* LoweringContext::own_value(GraphValue value) {
  const Geometry& layout = value.layout();
  auto* own =
      add_node(runtime_ops().own, {result_of(value), constant_list(layout.sizes), constant_list(layout.strides)}, 1);
  return own->output()->setType(type_of(layout));
}

std::vector<JitValue*> LoweringContext::call_inputs(const GraphNode& node, const Owned& owned) {
  const std::vector<JitValue*> operands = this->operands(node, owned);
  size_t operand = 0;
  size_t scalar = 0;
  std::vector<JitValue*> inputs;
  for (const ArgBinding& arg : node.signature()->args) {
    switch (arg.kind) {
      case ArgBinding::Kind::kConstant:
        inputs.push_back(constant(arg.constant));
        break;
      case ArgBinding::Kind::kOperand:
        inputs.push_back(operands[operand++]);
        break;
      case ArgBinding::Kind::kOperandList: {
        const auto elements = c10::ArrayRef<JitValue*>(operands).slice(operand, arg.count);
        bool is_optional = false;
        for (uint32_t i = 0; i < arg.count; ++i) {
          is_optional |= !node.operand(operand++).value().defined();
        }
        inputs.push_back(list(
            elements,
            is_optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TypePtr(c10::TensorType::get())));
        break;
      }
      case ArgBinding::Kind::kScalar:
        inputs.push_back(scalars_[node.scalars()[scalar++]]);
        break;
      case ArgBinding::Kind::kGenerator: {
        JitValue* seed = scalars_[node.scalars()[scalar++]];
        inputs.push_back(random_fill_symbol(node.op()) ? seed : generator(seed));
        break;
      }
    }
  }
  return inputs;
}

std::vector<JitValue*> LoweringContext::operands(const GraphNode& node, const Owned& owned) {
  std::vector<JitValue*> operands;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphUse& use = node.operand(i);
    operands.push_back(use.same_as() < i ? operands[use.same_as()] : operand(use, owned));
  }
  return operands;
}

JitValue* LoweringContext::operand(const GraphUse& operand, const Owned& owned) {
  const GraphValue value = operand.value();
  if (!value.defined()) {
    return constant(c10::IValue());
  }
  // A call that reads what it also writes must see one memory, as in eager.
  const auto replacement = owned.by_value.find({value.node, value.output});
  JitValue* base = replacement == owned.by_value.end() ? result_of(value) : replacement->second;
  if (!operand.view()) {
    return base;
  }
  const Geometry& layout = value.layout();
  const View& view = *operand.view();
  std::vector<JitValue*> inputs = {
      base,
      constant_list(layout.sizes),
      constant_list(layout.strides),
      constant(static_cast<int64_t>(view.dtype)),
      constant_list(view.sizes),
      constant_list(view.strides),
      constant(view.conj),
      constant(view.neg),
      constant(view.wrapped_number)};
  view.moves() ? inputs.insert(inputs.begin() + 1, scalars_[view.offset_scalar])
               : inputs.insert(inputs.begin() + 6, constant(view.offset));
  auto* strided = add_node(runtime_ops().strided_view, inputs, 1);
  return strided->output()->setType(type_of(view));
}

JitValue* LoweringContext::list(c10::ArrayRef<JitValue*> elements, const c10::TypePtr& element) {
  return add_node(torch::jit::prim::ListConstruct, elements, 1)->output()->setType(c10::ListType::create(element));
}

JitValue* LoweringContext::generator(JitValue* seed) {
  auto* generator = add_node(runtime_ops().generator, {seed}, 1);
  generator->output()->setType(c10::OptionalType::create(c10::GeneratorType::get()));
  return generator->output();
}

void LoweringContext::bind_outputs(GraphNode& node, JitNode* call, const Owned& owned) {
  uint32_t next = 0;
  const auto bind = [&](JitValue* result) {
    const GraphValue value = node.output(next++);
    if (value.layout().offset != 0 || value.layout().has_bits()) {
      set_returns_views(*result->node());
    }
    result_of(value) = result->setType(type_of(value.layout()));
  };
  const auto& returns = node.signature()->returns;
  for (size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].kind == ReturnBinding::Kind::kFresh) {
      bind(call->output(i));
    } else if (returns[i].kind == ReturnBinding::Kind::kFreshList) {
      call->output(i)->setType(c10::ListType::ofTensors());
      auto* unpack = add_node(torch::jit::prim::ListUnpack, {call->output(i)}, returns[i].index);
      std::for_each(unpack->outputs().begin(), unpack->outputs().end(), bind);
    }
  }
  for (JitValue* replacement : owned.values) {
    result_of(node.output(next++)) = replacement;
  }
}

// Without a list to look it up by.
JitValue* LoweringContext::constant_list(c10::IntArrayRef list) {
  auto& known = constants_[key_of(list)];
  return known = known ? known : lowered_.graph->insertConstant(list.vec());
}

JitValue* LoweringContext::constant(const c10::IValue& value) {
  if (value.isBoolList()) { // as a constant it cannot be read back
    std::vector<JitValue*> elements;
    for (const bool element : value.toBoolList()) {
      elements.push_back(constant(element));
    }
    return list(elements, c10::BoolType::get());
  }
  const auto key = key_of_constant(value);
  if (!key) {
    return lowered_.graph->insertConstant(value);
  }
  auto& known = constants_[*key];
  return known = known ? known : lowered_.graph->insertConstant(value);
}

const c10::TypePtr& LoweringContext::type_of(const Geometry& geometry) {
  c10::TypePtr& type = types_[hash_combine(Hash128(), geometry)];
  if (!type) {
    type = lazyplug::type_of(geometry);
  }
  return type;
}

JitNode* LoweringContext::add_node(c10::Symbol kind, c10::ArrayRef<JitValue*> inputs, size_t num_outputs) {
  auto* node = lowered_.graph->create(kind, inputs, num_outputs);
  set_origin(*node, origin_->id(), origin_->is_call() && !origin_->is_as_recorded());
  return lowered_.graph->insertNode(node);
}

} // namespace lazyplug
