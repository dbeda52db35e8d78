#include "lowering/nodes/resolve_kernel.h"

#include "lowering/calls/function_kernel.h"
#include "lowering/calls/norm_gradient_kernel.h"
#include "lowering/calls/random_fill.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/nodes/copy_kernel.h"
#include "lowering/nodes/draw_kernel.h"
#include "lowering/nodes/exact_kernels.h"
#include "lowering/nodes/extreme_kernel.h"
#include "lowering/nodes/out_variants.h"
#include "lowering/nodes/pointwise_kernel.h"
#include "lowering/nodes/product_kernel.h"
#include "lowering/nodes/sum_kernel.h"
#include "lowering/nodes/tile_kernel.h"
#include "lowering/passes/pass.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

template <typename T>
T constant(const JitNode& node, size_t input) {
  return torch::jit::toIValue(node.input(input))->to<T>();
}

const Geometry* layout_of(const torch::jit::Value& value, TypeGeometries& geometries) {
  const Geometry* layout = geometries.find(*value.type());
  TORCH_CHECK(layout, "the type of %", value.debugName(), " does not say how it lies");
  return layout;
}

Kernel own_kernel(const JitNode& node, TypeGeometries& geometries) {
  const auto run = [layout = layout_of(*node.output(), geometries)](c10::Stack& stack) {
    // Moved off the stack, or the stack's own reference would forbid donation.
    at::Tensor base = std::move(stack.back()).toTensor();
    stack.back() = own(std::move(base), *layout);
  };
  return {run, 1};
}

Kernel view_kernel(const JitNode& node, TypeGeometries& geometries) {
  const bool moves = node.input(1)->type()->kind() == c10::TypeKind::IntType;
  Geometry view = *layout_of(*node.output(), geometries);
  view.offset = moves ? 0 : constant<int64_t>(node, 6);
  view.conj = constant<bool>(node, 7);
  view.neg = constant<bool>(node, 8);
  view.wrapped_number = constant<bool>(node, 9);
  const Geometry* layout = layout_of(*node.input(0), geometries);
  const Geometry* seen = geometries.add(std::move(view));
  if (!moves) {
    return {[=](c10::Stack& stack) { stack.back() = strided_view(stack.back().toTensor(), *layout, *seen); }, 1};
  }
  const auto run = [=, extent = seen->extent_bytes()](c10::Stack& stack) {
    const int64_t offset = stack.back().toInt();
    stack.pop_back();
    stack.back() = moved(strided_view(stack.back().toTensor(), *layout, *seen), offset, extent);
  };
  return {run, 2};
}

Kernel empty_kernel(const JitNode& node, TypeGeometries& geometries) {
  return {
      [layout = layout_of(*node.output(), geometries)](c10::Stack& stack) { stack.emplace_back(empty(*layout)); },
      0};
}

Kernel generator_kernel(const JitNode& /*node*/, TypeGeometries& /*geometries*/) {
  return {[](c10::Stack& stack) { stack.back() = seeded_generator(stack.back().toInt()); }, 1};
}

Kernel list_kernel(const JitNode& node, TypeGeometries& /*geometries*/) {
  const size_t count = node.inputs().size();
  const auto run = [count,
                    element = node.output()->type()->expectRef<c10::ListType>().getElementType()](c10::Stack& stack) {
    c10::impl::GenericList list(element);
    list.reserve(count);
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      list.push_back(std::move(stack[i]));
    }
    stack.resize(stack.size() - count);
    stack.emplace_back(std::move(list));
  };
  return {run, count};
}

Kernel unpack_kernel(const JitNode& /*node*/, TypeGeometries& /*geometries*/) {
  const auto run = [](c10::Stack& stack) {
    const auto tensors = std::move(stack.back()).toTensorVector();
    stack.pop_back();
    stack.insert(stack.end(), tensors.begin(), tensors.end());
  };
  return {run, 1};
}

Kernel group_kernel(const JitNode& node, TypeGeometries& /*geometries*/) {
  return {
      TileKernel(parse_program(constant<std::string>(node, 4)), static_cast<size_t>(constant<int64_t>(node, 3))),
      3};
}

Kernel pointwise_kernel(const JitNode& node, TypeGeometries& /*geometries*/) {
  PointwiseKernel kernel(node, is_pass_enabled("destinations"));
  auto outputs = kernel.outputs();
  return {std::move(kernel), node.inputs().size(), nullptr, std::move(outputs)};
}

Kernel norm_gradient_kernel(const JitNode& node, TypeGeometries& /*geometries*/) {
  return {norm_gradient, node.inputs().size()};
}

Kernel random_fill_kernel(const JitNode& node, TypeGeometries& /*geometries*/) {
  return {[symbol = node.kind()](c10::Stack& stack) { fill_randomly(symbol, stack); }, node.inputs().size()};
}

using Resolve = Kernel (*)(const JitNode&, TypeGeometries&);

Resolve find_runtime_op(c10::Symbol kind) {
  static const auto* known = new std::unordered_map<c10::Symbol, Resolve>{
      {runtime_ops().own, own_kernel},
      {runtime_ops().strided_view, view_kernel},
      {runtime_ops().empty, empty_kernel},
      {runtime_ops().generator, generator_kernel},
      {runtime_ops().tile_program, group_kernel},
      {runtime_ops().pointwise, pointwise_kernel},
      {runtime_ops().norm_gradient, norm_gradient_kernel},
      {runtime_ops().bernoulli_, random_fill_kernel},
      {runtime_ops().uniform_, random_fill_kernel},
      {runtime_ops().normal_, random_fill_kernel},
      {runtime_ops().random_, random_fill_kernel},
      {torch::jit::prim::ListConstruct, list_kernel},
      {torch::jit::prim::ListUnpack, unpack_kernel},
  };
  const auto found = known->find(kind);
  return found == known->end() ? nullptr : found->second;
}

} // namespace

Kernel resolve_kernel(const JitNode& node, const FindOp& find_op, TypeGeometries& geometries, const OpInfo*& op) {
  op = nullptr;
  if (const Resolve resolve = find_runtime_op(node.kind())) {
    return resolve(node, geometries);
  }
  op = &find_op({node.kind(), overload_of(node)});
  Kernel kernel{[op = op](c10::Stack& stack) { op->call(stack); }, node.inputs().size()};
  if (op->is_foreach() && is_function_here(*op)) { // others are pointwise groups
    kernel.run = [op = op](c10::Stack& stack) { run_function(*op, stack) ? void() : op->call(stack); };
  }
  for (const auto& find :
       {tile_update_kernel, exact_kernel, copy_kernel, draw_kernel, extreme_kernel, sum_kernel, product_kernel}) {
    if (auto run = find(node, *op, geometries)) {
      kernel.run = std::move(run);
      break;
    }
  }
  if (const auto* variant = find_out_variant(*op)) {
    kernel.run_into = [variant](c10::Stack& stack) { variant->callBoxed(stack); };
  }
  return kernel;
}

} // namespace lazyplug
