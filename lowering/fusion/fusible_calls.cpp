#include "lowering/fusion/fusible_calls.h"

#include <algorithm>
#include <string_view>

#include "lowering/fusion/function_layout.h"

namespace lazyplug {
namespace {

// The CPU reads it element by element while it is written.
bool reads_view_of_written(const GraphNode& node) {
  for (size_t i = 1; i < node.num_operands(); ++i) {
    if (node.operand(i).view() && node.operand(i).value() == node.operand(0).value()) {
      return true;
    }
  }
  return false;
}

// Anew, or in place of all of its first operand.
bool makes_one_value(const GraphNode& node) {
  const Signature& signature = *node.signature();
  if (signature.returns.size() != 1 || node.num_outputs() != 1) {
    return false;
  }
  if (signature.written.empty()) {
    return signature.returns[0].kind == ReturnBinding::Kind::kFresh;
  }
  return signature.writes_operand(0) && !node.operand(0).view() && node.operand(0).value().defined() &&
         !(signature.shares_written && reads_view_of_written(node));
}

// The results of layer norm: one element for each row but for the first.
bool makes_norm(const GraphNode& node) {
  const auto& returns = node.signature()->returns;
  const auto is_fresh = [](const ReturnBinding& value) { return value.kind == ReturnBinding::Kind::kFresh; };
  const Geometry& result = node.layout_of(0);
  if (returns.size() != 3 || node.num_outputs() != 3 || !std::all_of(returns.begin(), returns.end(), is_fresh) ||
      result.sizes.empty()) {
    return false;
  }
  c10::DimVector sizes = result.sizes;
  sizes.back() = 1;
  const Geometry of_rows = Geometry::contiguous(c10::ScalarType::Float, sizes);
  return node.layout_of(1) == of_rows && node.layout_of(2) == of_rows;
}

std::string_view variant_of(const Signature& signature) {
  for (const ArgBinding& arg : signature.args) {
    if (arg.kind == ArgBinding::Kind::kConstant && arg.constant.isString()) {
      return arg.constant.toStringRef();
    }
  }
  return {};
}

bool add_operand(const GraphNode& node, size_t operand, const PointwiseOp& function, FunctionLayout& layout) {
  const bool is_row = operand > 0 && function.is_layer_norm();
  const GraphUse& use = node.operand(operand);
  if (!use.value().defined()) {
    layout.add_missing_row();
    return is_row;
  }
  const Geometry& seen = seen_by(use);
  const FunctionLayout::Tensor tensor{seen.dtype, seen.sizes, seen.strides, seen.is_dense()};
  return is_row ? layout.add_row(tensor) : layout.add(tensor);
}

// What writes is not computed here, nor what a pass has made of it.
bool is_computed_here(const GraphNode& node, const PointwiseOp& function) {
  if (node.op().writes() || !node.is_as_recorded()) {
    return false;
  }
  FunctionLayout layout(function);
  for (size_t i = 0; i < node.num_operands(); ++i) {
    if (!add_operand(node, i, function, layout)) {
      return false;
    }
  }
  const Geometry& result = layout.result();
  return function.kind == PointwiseOp::Kind::kReduces ||
         (node.layout_of(0).dtype == result.dtype && node.layout_of(0).same_memory(result.sizes, result.strides));
}

} // namespace

const Geometry& seen_by(const GraphUse& operand) {
  return operand.view() ? *operand.view() : operand.value().layout();
}

c10::ScalarType promoted_dtype(const Signature& signature) {
  c10::ScalarType result = c10::ScalarType::Undefined;
  bool has_dims = false;
  for (const Geometry& operand : signature.operands) {
    const bool is_first_kind = !operand.sizes.empty();
    if (operand.wrapped_number || (has_dims && !is_first_kind)) {
      continue;
    }
    const bool is_better = result == c10::ScalarType::Undefined || (is_first_kind && !has_dims);
    result = is_better ? operand.dtype : c10::promoteTypes(result, operand.dtype);
    has_dims |= is_first_kind;
  }
  return result;
}

bool are_truths(const Signature& signature) {
  return std::all_of(signature.operands.begin(), signature.operands.end(), [](const Geometry& operand) {
    return operand.dtype == c10::ScalarType::Bool;
  });
}

bool makes_values(const GraphNode& node, const PointwiseOp& op) {
  return op.is_layer_norm() ? makes_norm(node) : makes_one_value(node);
}

const PointwiseOp* function_of(const GraphNode& node) {
  const PointwiseOp* function = find_function(node.op(), variant_of(*node.signature()));
  return function && makes_values(node, *function) && is_computed_here(node, *function) ? function : nullptr;
}

} // namespace lazyplug
