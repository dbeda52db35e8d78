#include "lowering/lowering_context.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/config.h"
#include "lowering/runtime_ops.h"
#include "lowering/tile_kernel.h"
#include "lowering/verify.h"

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

Kernel call_kernel(NodeId id, const SignaturePtr& signature, size_t num_inputs) {
  const OpInfo& op = *signature->op;
  if (!config().verify_ir.get()) {
    return {[&op](c10::Stack& stack) { op.call(stack); }, num_inputs, id};
  }
  const auto checked = [&op, signature](c10::Stack& stack) {
    verify_arguments(*signature, stack);
    op.call(stack);
  };
  return {checked, num_inputs, id};
}

// Which fresh output of the IR node each return of its op is.
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

Kernel view_kernel(NodeId id, const Geometry& layout, const Geometry& view) {
  return {
      [layout, view](c10::Stack& stack) { stack.back() = strided_view(stack.back().toTensor(), layout, view); },
      1,
      id};
}

Kernel own_kernel(NodeId id, const Geometry& layout) {
  return {
      [layout](c10::Stack& stack) {
        // Moved off the stack, or the stack's own reference would forbid
        // donation.
        at::Tensor base = std::move(stack.back()).toTensor();
        stack.back() = own(std::move(base), layout);
      },
      1,
      id,
      {},
      /*hands_on_memory=*/true};
}

Kernel empty_kernel(NodeId id, const Geometry& layout) {
  return {[layout](c10::Stack& stack) { stack.emplace_back(empty(layout)); }, 0, id};
}

Kernel generator_kernel(NodeId id) {
  return {[](c10::Stack& stack) { stack.back() = seeded_generator(stack.back().toInt()); }, 1, id};
}

Kernel list_kernel(NodeId id, size_t count, const c10::TypePtr& element) {
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
      id};
}

Kernel unpack_kernel(NodeId id) {
  return {
      [](c10::Stack& stack) {
        const auto tensors = std::move(stack.back()).toTensorVector();
        stack.pop_back();
        stack.insert(stack.end(), tensors.begin(), tensors.end());
      },
      1,
      id};
}

// The elements of the list are the fresh outputs of the IR node from `first` on.
Kernel unpack_kernel(NodeId id, size_t first, size_t count) {
  Kernel kernel = unpack_kernel(id);
  kernel.fresh.resize(count);
  std::iota(kernel.fresh.begin(), kernel.fresh.end(), static_cast<uint32_t>(first));
  return kernel;
}

} // namespace

LoweringContext::LoweringContext(const Trace& trace) : trace_(trace) {
  lowered_.graph = std::make_shared<torch::jit::Graph>();
  values_.resize(trace.size());
  add_inputs();
}

LoweredGraph LoweringContext::lower(c10::ArrayRef<Value> roots) && {
  std::vector<NodeId> nodes = post_order(trace_, roots);
  std::erase_if(nodes, [this](NodeId id) { return trace_.node(id).kind == NodeKind::kDeviceData; }); // inputs
  count_reads(nodes, roots);
  for (size_t i = 0; i < nodes.size();) {
    const size_t num_grouped = lower_group(c10::ArrayRef<NodeId>(nodes).slice(i));
    if (num_grouped == 0) {
      lower_node(nodes[i]);
    }
    i += std::max<size_t>(num_grouped, 1);
  }
  for (Value root : roots) {
    lowered_.graph->registerOutput(values_[root.node][root.output]);
  }
  return std::move(lowered_);
}

void LoweringContext::add_inputs() {
  for (NodeId id = 0; id < trace_.size(); ++id) {
    if (trace_.node(id).kind == NodeKind::kDeviceData) {
      values_[id].push_back(lowered_.graph->addInput());
    }
  }
  for (const c10::IValue& scalar : trace_.all_scalars()) {
    scalars_.push_back(lowered_.graph->addInput()->setType(scalar_type(scalar)));
  }
}

void LoweringContext::lower_node(NodeId id) {
  switch (trace_.node(id).kind) {
    case NodeKind::kDeviceData:
      return; // an input
    case NodeKind::kEmpty:
      lower_empty(id);
      break;
    case NodeKind::kCall:
      lower_call(id);
      break;
  }
  ++lowered_.num_ops;
}

void LoweringContext::lower_empty(NodeId id) {
  const Geometry& layout = *trace_.node(id).layout;
  auto* node = add_node(
      "lazyplug::empty",
      {constant(static_cast<int64_t>(layout.dtype)), constant(ints(layout.sizes)), constant(ints(layout.strides))},
      1,
      empty_kernel(id, layout));
  values_[id].push_back(node->output());
}

void LoweringContext::lower_call(NodeId id) {
  const SignaturePtr& signature = trace_.node(id).signature;
  const OpInfo& op = *signature->op;
  const Owned owned = own_written_values(id);
  const auto inputs = call_inputs(id, owned);
  Kernel kernel = call_kernel(id, signature, inputs.size());
  kernel.fresh = fresh_returns(*signature);
  for (const auto& [value, replacement] : owned) {
    kernel.writes.push_back(replacement);
  }
  auto* call = add_node(op.base_name().c_str(), inputs, op.num_returns(), std::move(kernel));
  bind_outputs(id, call, owned);
}

void LoweringContext::count_reads(c10::ArrayRef<NodeId> nodes, c10::ArrayRef<Value> roots) {
  const auto count = [this](Value value) {
    if (value.defined()) {
      auto& reads = reads_[value.node];
      reads.resize(std::max<size_t>(reads.size(), value.output + 1));
      ++reads[value.output];
    }
  };
  reads_.resize(trace_.size());
  for (NodeId id : nodes) {
    for (const Operand& operand : trace_.operands(trace_.node(id))) {
      count(operand.value);
    }
  }
  std::for_each(roots.begin(), roots.end(), count);
}

size_t LoweringContext::lower_group(c10::ArrayRef<NodeId> nodes) {
  ForeachGroup group(trace_);
  while (group.nodes().size() < nodes.size() && group.add(nodes[group.nodes().size()])) {
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
    const auto is_read_later = [&](Value value) {
      const auto& reads = reads_[value.node];
      return value.output < reads.size() && reads[value.output] > group.num_reads(value);
    };
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
  lowered_.num_ops += group.nodes().size();
}

// Those that the group is given, private if it writes them.
JitValue* LoweringContext::group_tensors(const ForeachGroup& group, const std::vector<uint8_t>& lists, Kernel& kernel) {
  const NodeId id = group.nodes().front();
  std::vector<JitValue*> tensors;
  for (const uint8_t index : lists) {
    const auto& list = group.lists()[index];
    for (size_t row = 0; row < group.num_rows(); ++row) {
      const Value value = list.first[row];
      JitValue* tensor = list.is_written ? own_value(id, value) : values_[value.node][value.output];
      tensors.push_back(tensor);
      if (list.is_written) {
        kernel.writes.push_back(tensor);
        bind(list.last[row], tensor);
      }
    }
  }
  return this->list(id, tensors, c10::TensorType::get());
}

JitValue* LoweringContext::group_numbers(const ForeachGroup& group, bool lists) {
  std::vector<JitValue*> numbers;
  for (const auto& number : group.numbers()) {
    if (number.is_list == lists) {
      numbers.push_back(scalars_[number.scalar]);
    }
  }
  const c10::TypePtr number = c10::NumberType::get();
  return list(group.nodes().front(), numbers, lists ? c10::TypePtr(c10::ListType::create(number)) : number);
}

void LoweringContext::bind_fresh(const ForeachGroup& group, c10::ArrayRef<uint8_t> lists, JitNode* call) {
  if (lists.empty()) {
    return;
  }
  auto* unpack = add_node(
      "prim::ListUnpack",
      {call->output()},
      lists.size() * group.num_rows(),
      unpack_kernel(group.nodes().front()));
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto& last = group.lists()[lists[i]].last;
    for (size_t row = 0; row < group.num_rows(); ++row) {
      bind(last[row], unpack->output(i * group.num_rows() + row));
    }
  }
}

void LoweringContext::bind(Value value, JitValue* result) {
  auto& outputs = values_[value.node];
  outputs.resize(std::max<size_t>(outputs.size(), value.output + 1));
  outputs[value.output] = result;
}

LoweringContext::Owned LoweringContext::own_written_values(NodeId id) {
  Owned owned;
  for (Value value : trace_.written_values(trace_.node(id))) {
    owned.emplace_back(value, own_value(id, value));
  }
  return owned;
}

JitValue* LoweringContext::own_value(NodeId id, Value value) {
  const Geometry& layout = trace_.layout(value);
  auto* node = add_node(
      "lazyplug::own",
      {values_[value.node][value.output], constant(ints(layout.sizes)), constant(ints(layout.strides))},
      1,
      own_kernel(id, layout));
  return node->output();
}

std::vector<JitValue*> LoweringContext::call_inputs(NodeId id, const Owned& owned) {
  const Node& node = trace_.node(id);
  auto operands = trace_.operands(node);
  size_t scalar = node.first_scalar;
  std::vector<JitValue*> inputs;
  for (const ArgBinding& arg : node.signature->args) {
    switch (arg.kind) {
      case ArgBinding::Kind::kConstant:
        inputs.push_back(constant(arg.constant));
        break;
      case ArgBinding::Kind::kOperand:
        inputs.push_back(operand(id, operands.front(), owned));
        operands = operands.slice(1);
        break;
      case ArgBinding::Kind::kOperandList:
        inputs.push_back(operand_list(id, operands.slice(0, arg.count), owned));
        operands = operands.slice(arg.count);
        break;
      case ArgBinding::Kind::kScalar:
        inputs.push_back(scalars_[scalar++]);
        break;
      case ArgBinding::Kind::kGenerator:
        inputs.push_back(generator(id, scalars_[scalar++]));
        break;
    }
  }
  return inputs;
}

JitValue* LoweringContext::operand(NodeId id, const Operand& operand, const Owned& owned) {
  const Value value = operand.value;
  if (!value.defined()) {
    return constant(c10::IValue());
  }
  // A call that reads what it also writes must see one memory, as in eager.
  JitValue* base = values_[value.node][value.output];
  for (const auto& [written, replacement] : owned) {
    base = written == value ? replacement : base;
  }
  if (!operand.view) {
    return base;
  }
  auto& result = views_[operand.view];
  if (result) {
    return result; // one tensor, passed twice
  }
  const Geometry& layout = trace_.layout(value);
  const Geometry& view = *operand.view;
  auto* node = add_node(
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
      view_kernel(id, layout, view));
  return result = node->output();
}

JitValue* LoweringContext::operand_list(NodeId id, c10::ArrayRef<Operand> operands, const Owned& owned) {
  std::vector<JitValue*> elements;
  bool optional = false;
  for (const Operand& element : operands) {
    optional |= !element.value.defined();
    elements.push_back(operand(id, element, owned));
  }
  return list(
      id,
      elements,
      optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TypePtr(c10::TensorType::get()));
}

JitValue* LoweringContext::list(NodeId id, c10::ArrayRef<JitValue*> elements, const c10::TypePtr& element) {
  auto* node = add_node("prim::ListConstruct", elements, 1, list_kernel(id, elements.size(), element));
  return node->output()->setType(c10::ListType::create(element));
}

JitValue* LoweringContext::generator(NodeId id, JitValue* seed) {
  auto* node = add_node("lazyplug::generator", {seed}, 1, generator_kernel(id));
  node->output()->setType(c10::OptionalType::create(c10::GeneratorType::get()));
  return node->output();
}

void LoweringContext::bind_outputs(NodeId id, JitNode* call, const Owned& owned) {
  auto& outputs = values_[id];
  const auto& returns = trace_.node(id).signature->returns;
  for (size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].kind == ReturnBinding::Kind::kFresh) {
      outputs.push_back(call->output(i));
    } else if (returns[i].kind == ReturnBinding::Kind::kFreshList) {
      call->output(i)->setType(c10::ListType::ofTensors());
      const size_t count = returns[i].index;
      auto* unpack = add_node("prim::ListUnpack", {call->output(i)}, count, unpack_kernel(id, outputs.size(), count));
      for (auto* element : unpack->outputs()) {
        outputs.push_back(element);
      }
    }
  }
  for (const auto& [written, replacement] : owned) {
    outputs.push_back(replacement);
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
