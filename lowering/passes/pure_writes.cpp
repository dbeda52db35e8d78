#include "lowering/passes/pure_writes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "kernels/tile_program.h"
#include "lowering/ir/finish_signature.h"
#include "lowering/ir/op_variants.h"

namespace lazyplug {
namespace {

// Without the "_". Their results have the dtype of their operands, if those have one, and lie as these do.
constexpr std::array<std::string_view, 19> kPointwise = {
    "aten::abs",
    "aten::add",
    "aten::addcdiv",
    "aten::addcmul",
    "aten::ceil",
    "aten::clamp",
    "aten::div",
    "aten::exp",
    "aten::floor",
    "aten::lerp",
    "aten::mul",
    "aten::neg",
    "aten::relu",
    "aten::rsqrt",
    "aten::sigmoid",
    "aten::sqrt",
    "aten::square",
    "aten::sub",
    "aten::tanh"};

// The op that returns what this one writes, or null.
std::unique_ptr<const OpInfo> find_pure(const OpInfo& op) {
  const std::string& base = op.base_name();
  if (!op.is_aten() || !base.ends_with('_')) {
    return nullptr;
  }
  const std::string name = base.substr(0, base.size() - 1);
  if (std::find(kPointwise.begin(), kPointwise.end(), name) == kPointwise.end()) {
    return nullptr;
  }
  const auto handle = c10::Dispatcher::singleton().findSchema({name, op.overload()});
  const bool is_pure = handle && takes_arguments_of(op.handle().schema(), handle->schema());
  return is_pure ? std::make_unique<const OpInfo>(*handle, OpTraits()) : nullptr;
}

const OpInfo* pure_variant(const OpInfo& op) {
  static auto* variants = new OpVariants<std::unique_ptr<const OpInfo>>(find_pure);
  return variants->of(op).get();
}

bool is_needed_later(const GraphNode& node, GraphValue value) {
  for (const GraphUse* use = value.uses(); use; use = use->next()) {
    if (use->is_root() || use->user()->place() > node.place()) {
      return true;
    }
  }
  return false;
}

// Whether the pure kernel returns what lies as the first operand does: then all others do, or are numbers.
bool lies_as_its_operands(const GraphNode& node) {
  const Geometry& layout = node.operand(0).value().layout();
  if (!c10::isFloatingType(layout.dtype) || !layout.is_dense()) {
    return false;
  }
  for (size_t i = 1; i < node.num_operands(); ++i) {
    const GraphUse& operand = node.operand(i);
    const Geometry* geometry = operand.view()              ? operand.view()
                               : operand.value().defined() ? &operand.value().layout()
                                                           : nullptr;
    const bool is_alike = geometry && geometry->dtype == layout.dtype && geometry->sizes == layout.sizes &&
                          geometry->strides == layout.strides;
    if (!is_alike && !(geometry && geometry->wrapped_number)) {
      return false;
    }
  }
  return true;
}

// Of 16-bit floats: PyTorch's `mul_` rounds a number that is not a tensor to their dtype, `mul` does not.
bool rounds_number(const GraphNode& node) {
  return kernels::is_narrow_float(node.layout_of(0).dtype) && node.op().base_name() == "aten::mul_" &&
         node.op().overload() == "Scalar";
}

SignaturePtr pure_signature(const GraphNode& node, const OpInfo& op) {
  const Signature& original = *node.signature();
  auto signature = c10::make_intrusive<Signature>(original);
  signature->op = &op;
  signature->identity = hash_combine(original.identity, hash_bytes(op.name()));
  signature->returns = {ReturnBinding{}};
  signature->outputs = {node.layout_of(0)};
  signature->written.clear();
  signature->shares_written = false;
  finish_signature(*signature);
  return signature;
}

// The op that the call may be instead, or null.
const OpInfo* pure_op(const GraphNode& node) {
  if (!node.is_call() || node.num_operands() == 0 || !node.signature()->outputs.empty() || node.num_outputs() != 1) {
    return nullptr;
  }
  const GraphUse& written = node.operand(0);
  if (!written.is_write() || written.view() || !is_needed_later(node, written.value()) || !lies_as_its_operands(node) ||
      rounds_number(node)) {
    return nullptr;
  }
  return pure_variant(node.op());
}

} // namespace

bool make_writes_pure(Graph& graph) {
  bool any = false;
  graph.number();
  for (GraphNode& node : graph.nodes()) {
    if (const OpInfo* op = pure_op(node)) {
      graph.replace_signature(node, pure_signature(node, *op));
      any = true;
    }
  }
  return any;
}

} // namespace lazyplug
