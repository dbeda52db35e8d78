#include "lowering/fusion/fusible_calls.h"

#include <algorithm>
#include <string_view>

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

bool lies_like(const GraphUse& operand, const Geometry& result) {
  if (!operand.value().defined()) {
    return false;
  }
  const Geometry& seen = seen_by(operand);
  return seen.dtype == result.dtype && seen.same_memory(result.sizes, result.strides);
}

bool is_part_for(const PointwiseOp& function, const GraphUse& operand, const Geometry& result) {
  if (!operand.value().defined() || !result.is_contiguous()) {
    return false;
  }
  const Geometry& seen = seen_by(operand);
  return seen.dtype == result.dtype && seen.sizes == result.sizes && takes_part(function, seen.sizes, seen.strides);
}

// The operands after the first: a weight, or none, then a bias, if there is a weight.
bool are_rows_of(const GraphNode& node, const Geometry& result) {
  bool lacks_row = false;
  for (size_t i = 1; i < node.num_operands(); ++i) {
    const GraphUse& operand = node.operand(i);
    if (!operand.value().defined()) {
      lacks_row = true;
      continue;
    }
    const Geometry& seen = seen_by(operand);
    if (lacks_row || seen.dtype != result.dtype || seen.sizes.size() != 1 || seen.sizes[0] != result.sizes.back() ||
        seen.strides[0] != 1) {
      return false;
    }
  }
  return true;
}

// See find_function(). What writes is not computed here, nor what a pass has made of it.
bool is_computed_here(const GraphNode& node, const PointwiseOp& function) {
  const Geometry& result = function.kind == PointwiseOp::Kind::kReduces ? seen_by(node.operand(0)) : node.layout_of(0);
  if (node.op().writes() || !node.is_as_recorded() || !takes_dtype(function, result.dtype) ||
      !takes_rows(function, result.sizes, result.strides)) {
    return false;
  }
  if (function.is_layer_norm()) {
    return lies_like(node.operand(0), result) && are_rows_of(node, result);
  }
  for (size_t i = 0; i < node.num_operands(); ++i) {
    if (!lies_like(node.operand(i), result) && !is_part_for(function, node.operand(i), result)) {
      return false;
    }
  }
  return true;
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
