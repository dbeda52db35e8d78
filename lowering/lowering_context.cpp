#include "lowering/lowering_context.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/config.h"
#include "lowering/ir/verify.h"
#include "lowering/passes/pass.h"
#include "lowering/runtime_ops.h"
#include "lowering/tile_kernel.h"

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

// Of kinds that are frequent: sizes, strides, flags.
std::optional<Hash128> key_of_constant(const c10::IValue& value) {
  enum class Tag : uint64_t { kNone, kBool, kInt, kInts };
  const auto key = [](Tag tag, uint64_t word) {
    return hash_combine(hash_combine({}, static_cast<uint64_t>(tag)), word);
  };
  if (value.isNone()) {
    return key(Tag::kNone, 0);
  }
  if (value.isBool()) {
    return key(Tag::kBool, value.toBool());
  }
  if (value.isInt()) {
    return key(Tag::kInt, static_cast<uint64_t>(value.toInt()));
  }
  if (value.isIntList()) {
    const auto list = value.toIntVector();
    return hash_words(list.data(), list.size(), key(Tag::kInts, 0));
  }
  return std::nullopt;
}

std::vector<int64_t> ints(const c10::DimVector& dims) {
  return {dims.begin(), dims.end()};
}

Kernel call_kernel(const GraphNode& node, size_t num_inputs) {
  const OpInfo& op = node.op();
  if (!config().verify_ir.get()) {
    return {[&op](c10::Stack& stack) { op.call(stack); }, num_inputs, &node};
  }
  const auto checked = [&op, signature = node.signature()](c10::Stack& stack) {
    verify_arguments(*signature, stack);
    op.call(stack);
  };
  return {checked, num_inputs, &node};
}

// Which fresh output of the node each return of its op is.
std::vector<uint32_t> fresh_returns(const Signature& signature) {
  std::vector<uint32_t> fresh;
  uint32_t next = 0;
  for (const ReturnBinding& binding : signature.returns) {
    const bool is_fresh = binding.kind == ReturnBinding::Kind::kFresh;
    fresh.push_back(is_fresh ? next : Kernel::kNotFresh);
    next += is_fresh ? 1 : binding.kind == ReturnBinding::Kind::kFreshList ? binding.index : 0;
  }
  return fresh;
}

Kernel view_kernel(const GraphNode& node, const Geometry& layout, const Geometry& view) {
  return {
      [layout, view](c10::Stack& stack) { stack.back() = strided_view(stack.back().toTensor(), layout, view); },
      1,
      &node};
}

Kernel own_kernel(const GraphNode& node, const Geometry& layout) {
  return {
      [layout](c10::Stack& stack) {
        // Moved off the stack, or the stack's own reference would forbid
        // donation.
        at::Tensor base = std::move(stack.back()).toTensor();
        stack.back() = own(std::move(base), layout);
      },
      1,
      &node,
      {},
      /*hands_on_memory=*/true};
}

Kernel empty_kernel(const GraphNode& node, const Geometry& layout) {
  return {[layout](c10::Stack& stack) { stack.emplace_back(empty(layout)); }, 0, &node};
}

Kernel generator_kernel(const GraphNode& node) {
  return {[](c10::Stack& stack) { stack.back() = seeded_generator(stack.back().toInt()); }, 1, &node};
}

Kernel list_kernel(const GraphNode& node, size_t count, const c10::TypePtr& element) {
  return {
      [count, element](c10::Stack& stack) {
        c10::impl::GenericList list(element);
        list.reserve(count);
        for (size_t i = stack.size() - count; i < stack.size(); ++i) {
          list.push_back(std::move(stack[i]));
        }
        stack.resize(stack.size() - count);
        stack.emplace_back(std::move(list));
      },
      count,
      &node};
}

Kernel unpack_kernel(const GraphNode& node) {
  return {
      [](c10::Stack& stack) {
        const auto tensors = std::move(stack.back()).toTensorVector();
        stack.pop_back();
        stack.insert(stack.end(), tensors.begin(), tensors.end());
      },
      1,
      &node};
}

// The elements of the list are the fresh outputs of the node from `first` on.
Kernel unpack_kernel(const GraphNode& node, size_t first, size_t count) {
  Kernel kernel = unpack_kernel(node);
  kernel.fresh.resize(count);
  std::iota(kernel.fresh.begin(), kernel.fresh.end(), static_cast<uint32_t>(first));
  return kernel;
}

} // namespace

LoweringContext::LoweringContext(Graph& graph) : graph_(graph) {
  lowered_.graph = std::make_shared<torch::jit::Graph>();
  graph.number();
  results_.resize(graph.nodes().size());
  add_inputs();
}

LoweredGraph LoweringContext::lower() && {
  Nodes nodes;
  for (GraphNode& node : graph_.nodes()) {
    if (node.kind() != NodeKind::kDeviceData) { // an input
      nodes.push_back(&node);
    }
  }
  lowered_.num_ops = nodes.size();
  const bool may_group = is_pass_enabled("foreach_groups");
  for (size_t i = 0; i < nodes.size();) {
    const size_t num_grouped = may_group ? lower_group(c10::ArrayRef<GraphNode*>(nodes).slice(i)) : 0;
    if (num_grouped == 0) {
      lower_node(*nodes[i]);
    }
    i += std::max<size_t>(num_grouped, 1);
  }
  for (size_t i = 0; i < graph_.num_roots(); ++i) {
    lowered_.graph->registerOutput(result_of(graph_.root(i)));
  }
  return std::move(lowered_);
}

void LoweringContext::add_inputs() {
  for (GraphNode* leaf : graph_.leaves()) {
    result_of(leaf->output(0)) = lowered_.graph->addInput();
  }
  for (const c10::IValue& scalar : graph_.scalars()) {
    scalars_.push_back(lowered_.graph->addInput()->setType(scalar_type(scalar)));
  }
}

void LoweringContext::lower_node(GraphNode& node) {
  node.is_call() ? lower_call(node) : lower_empty(node);
}

void LoweringContext::lower_empty(GraphNode& node) {
  const Geometry& layout = node.layout_of(0);
  auto* empty = add_node(
      "lazyplug::empty",
      {constant(static_cast<int64_t>(layout.dtype)), constant(ints(layout.sizes)), constant(ints(layout.strides))},
      1,
      empty_kernel(node, layout));
  result_of(node.output(0)) = empty->output();
}

void LoweringContext::lower_call(GraphNode& node) {
  const Owned owned = own_written_values(node);
  const auto inputs = call_inputs(node, owned);
  Kernel kernel = call_kernel(node, inputs.size());
  kernel.fresh = fresh_returns(*node.signature());
  for (const auto& [value, replacement] : owned) {
    kernel.writes.push_back(replacement);
  }
  auto* call = add_node(node.op().base_name().c_str(), inputs, node.op().num_returns(), std::move(kernel));
  bind_outputs(node, call, owned);
}

size_t LoweringContext::lower_group(c10::ArrayRef<GraphNode*> nodes) {
  ForeachGroup group(graph_);
  while (group.nodes().size() < nodes.size() && group.add(*nodes[group.nodes().size()])) {
  }
  if (!group.empty()) {
    lower_group(group);
  }
  return group.nodes().size();
}

void LoweringContext::lower_group(const ForeachGroup& group) {
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
  Kernel kernel{TileKernel(program, group.num_rows()), 3, group.nodes().front()};
  auto* tensors = group_tensors(group, given, kernel);
  auto* call = add_node(
      "lazyplug::tile_program",
      {tensors,
       group_numbers(group, /*lists=*/false),
       group_numbers(group, /*lists=*/true),
       constant(static_cast<int64_t>(group.num_rows())),
       constant(kernels::to_string(program))},
      1,
      std::move(kernel));
  call->output()->setType(c10::ListType::ofTensors());
  bind_fresh(group, fresh, call);
}

// Those that the group is given, private if it writes them.
JitValue* LoweringContext::group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists, Kernel& kernel) {
  const GraphNode& node = *group.nodes().front();
  std::vector<JitValue*> tensors;
  for (const uint8_t index : lists) {
    const auto& list = group.lists()[index];
    for (size_t row = 0; row < group.num_rows(); ++row) {
      const GraphValue value = list.first[row];
      JitValue* tensor = list.is_written ? own_value(node, value) : result_of(value);
      tensors.push_back(tensor);
      if (list.is_written) {
        kernel.writes.push_back(tensor);
        result_of(list.last[row]) = tensor;
      }
    }
  }
  return this->list(node, tensors, c10::TensorType::get());
}

JitValue* LoweringContext::group_numbers(const ForeachGroup& group, bool lists) {
  std::vector<JitValue*> numbers;
  for (const auto& number : group.numbers()) {
    if (number.is_list == lists) {
      numbers.push_back(scalars_[number.scalar]);
    }
  }
  const c10::TypePtr number = c10::NumberType::get();
  return list(*group.nodes().front(), numbers, lists ? c10::TypePtr(c10::ListType::create(number)) : number);
}

void LoweringContext::bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, JitNode* call) {
  if (lists.empty()) {
    return;
  }
  auto* unpack = add_node(
      "prim::ListUnpack",
      {call->output()},
      lists.size() * group.num_rows(),
      unpack_kernel(*group.nodes().front()));
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto& last = group.lists()[lists[i]].last;
    for (size_t row = 0; row < group.num_rows(); ++row) {
      result_of(last[row]) = unpack->output(i * group.num_rows() + row);
    }
  }
}

JitValue*& LoweringContext::result_of(GraphValue value) {
  auto& results = results_[value.node->place()];
  results.resize(value.node->num_outputs());
  return results[value.output];
}

LoweringContext::Owned LoweringContext::own_written_values(const GraphNode& node) {
  Owned owned;
  for (GraphValue value : node.written_values()) {
    owned.emplace_back(value, own_value(node, value));
  }
  return owned;
}

JitValue* LoweringContext::own_value(const GraphNode& node, GraphValue value) {
  const Geometry& layout = value.layout();
  auto* own = add_node(
      "lazyplug::own",
      {result_of(value), constant(ints(layout.sizes)), constant(ints(layout.strides))},
      1,
      own_kernel(node, layout));
  return own->output();
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
            node,
            elements,
            is_optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TypePtr(c10::TensorType::get())));
        break;
      }
      case ArgBinding::Kind::kScalar:
        inputs.push_back(scalars_[node.scalars()[scalar++]]);
        break;
      case ArgBinding::Kind::kGenerator:
        inputs.push_back(generator(node, scalars_[node.scalars()[scalar++]]));
        break;
    }
  }
  return inputs;
}

std::vector<JitValue*> LoweringContext::operands(const GraphNode& node, const Owned& owned) {
  std::vector<JitValue*> operands;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphUse& use = node.operand(i);
    operands.push_back(use.same_as() < i ? operands[use.same_as()] : operand(node, use, owned));
  }
  return operands;
}

JitValue* LoweringContext::operand(const GraphNode& node, const GraphUse& operand, const Owned& owned) {
  const GraphValue value = operand.value();
  if (!value.defined()) {
    return constant(c10::IValue());
  }
  // A call that reads what it also writes must see one memory, as in eager.
  JitValue* base = result_of(value);
  for (const auto& [written, replacement] : owned) {
    base = written == value ? replacement : base;
  }
  if (!operand.view()) {
    return base;
  }
  const Geometry& layout = value.layout();
  const Geometry& view = *operand.view();
  auto* strided = add_node(
      "lazyplug::strided_view",
      {base,
       constant(ints(layout.sizes)),
       constant(ints(layout.strides)),
       constant(static_cast<int64_t>(view.dtype)),
       constant(ints(view.sizes)),
       constant(ints(view.strides)),
       constant(view.offset),
       constant(view.conj),
       constant(view.neg),
       constant(view.wrapped_number)},
      1,
      view_kernel(node, layout, view));
  return strided->output();
}

JitValue* LoweringContext::list(const GraphNode& node, c10::ArrayRef<JitValue*> elements, const c10::TypePtr& element) {
  auto* list = add_node("prim::ListConstruct", elements, 1, list_kernel(node, elements.size(), element));
  return list->output()->setType(c10::ListType::create(element));
}

JitValue* LoweringContext::generator(const GraphNode& node, JitValue* seed) {
  auto* generator = add_node("lazyplug::generator", {seed}, 1, generator_kernel(node));
  generator->output()->setType(c10::OptionalType::create(c10::GeneratorType::get()));
  return generator->output();
}

void LoweringContext::bind_outputs(GraphNode& node, JitNode* call, const Owned& owned) {
  uint32_t next = 0;
  const auto bind = [&](JitValue* result) { result_of(node.output(next++)) = result; };
  const auto& returns = node.signature()->returns;
  for (size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].kind == ReturnBinding::Kind::kFresh) {
      bind(call->output(i));
    } else if (returns[i].kind == ReturnBinding::Kind::kFreshList) {
      call->output(i)->setType(c10::ListType::ofTensors());
      const size_t count = returns[i].index;
      auto* unpack = add_node("prim::ListUnpack", {call->output(i)}, count, unpack_kernel(node, next, count));
      std::for_each(unpack->outputs().begin(), unpack->outputs().end(), bind);
    }
  }
  for (const auto& [written, replacement] : owned) {
    bind(replacement);
  }
}

JitValue* LoweringContext::constant(const c10::IValue& value) {
  const auto key = key_of_constant(value);
  if (!key) {
    return lowered_.graph->insertConstant(value);
  }
  auto& known = constants_[*key];
  return known = known ? known : lowered_.graph->insertConstant(value);
}

JitNode*
LoweringContext::add_node(const char* kind, c10::ArrayRef<JitValue*> inputs, size_t num_outputs, Kernel kernel) {
  auto* node = lowered_.graph->create(c10::Symbol::fromQualString(kind), inputs, num_outputs);
  lowered_.graph->insertNode(node);
  lowered_.kernels.emplace(node, std::move(kernel));
  return node;
}

} // namespace lazyplug
