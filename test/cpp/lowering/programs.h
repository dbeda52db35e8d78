// Builds small programs by hand: what the backend's tracer and shape inference do for real ones.
#pragma once

#include "lowering/ir/finish_signature.h"
#include "lowering/ir/trace.h"

#include <ATen/Functions.h>

#include <sstream>
#include <string>
#include <vector>

namespace lazyplug {

inline const OpInfo& make_op(const char* name, const char* overload = "", const OpTraits& traits = {}) {
  // Nodes refer to ops by pointer, for ever.
  return *new OpInfo(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), traits);
}

inline Geometry geometry_of(const at::Tensor& tensor) {
  return Geometry::of(*tensor.unsafeGetTensorImpl());
}

inline Geometry floats(c10::IntArrayRef sizes) {
  return Geometry::contiguous(at::kFloat, sizes);
}

inline ArgBinding an_operand() {
  return {ArgBinding::Kind::kOperand, 0, {}};
}
inline ArgBinding a_list(uint32_t count) {
  return {ArgBinding::Kind::kOperandList, count, {}};
}
inline ArgBinding a_scalar() {
  return {ArgBinding::Kind::kScalar, 0, {}};
}
inline ArgBinding a_seed() {
  return {ArgBinding::Kind::kGenerator, 0, {}};
}
inline ArgBinding a_constant(c10::IValue value) {
  return {ArgBinding::Kind::kConstant, 0, std::move(value)};
}

// Returns that alias an argument are that argument, the others are fresh, in order.
inline SignaturePtr make_signature(
    const OpInfo& op,
    std::vector<ArgBinding> args,
    std::vector<Geometry> outputs,
    std::vector<bool> written = {},
    float work = 0) {
  auto signature = c10::make_intrusive<Signature>();
  std::ostringstream identity;
  identity << op.name();
  for (const ArgBinding& arg : args) {
    identity << " " << static_cast<int>(arg.kind) << " " << arg.count << " " << arg.constant;
  }
  signature->op = &op;
  signature->work = work;
  signature->key = signature->identity = hash_bytes(identity.str());
  for (size_t i = 0; i < op.num_returns(); ++i) {
    const int alias = op.return_aliases()[i];
    const bool list = op.handle().schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    signature->returns.push_back(
        alias >= 0 ? ReturnBinding{ReturnBinding::Kind::kArgument, static_cast<uint32_t>(alias)}
        : list     ? ReturnBinding{ReturnBinding::Kind::kFreshList, static_cast<uint32_t>(outputs.size())}
                   : ReturnBinding{});
  }
  signature->args = std::move(args);
  signature->outputs = std::move(outputs);
  signature->written = std::move(written);
  finish_signature(*signature);
  return signature;
}

inline Value add_leaf(Trace& trace, const at::Tensor& data) {
  return trace.add_device_data(data, geometry_of(data));
}

inline Operand view_of(Trace& trace, Value value, Geometry view) {
  return {value, trace.own(std::move(view))};
}

// One call of an op that takes tensors only and returns one tensor like `result`.
// `work`: see light_work().
inline Value
add_simple(Trace& trace, const OpInfo& op, std::vector<Operand> operands, const Geometry& result, float work = 0) {
  const std::vector<ArgBinding> args(operands.size(), an_operand());
  return {trace.add_call(make_signature(op, args, {result}, {}, work), operands, {}, 0, nullptr), 0};
}

inline Value add_relu(Trace& trace, Operand self, const Geometry& result) {
  static const OpInfo& op = make_op("aten::relu");
  return add_simple(trace, op, {self}, result);
}

inline Value add_mul(Trace& trace, Operand self, Operand other, const Geometry& result) {
  static const OpInfo& op = make_op("aten::mul", "Tensor");
  return add_simple(trace, op, {self, other}, result);
}

// add(self, other, alpha=scalar)
inline Value add_add(Trace& trace, Operand self, Operand other, const Geometry& result, c10::IValue alpha = 1) {
  static const OpInfo& op = make_op("aten::add", "Tensor");
  const auto signature = make_signature(op, {an_operand(), an_operand(), a_scalar()}, {result});
  return {trace.add_call(signature, {self, other}, alpha, 0, nullptr), 0};
}

// self.add_(other, alpha=scalar); returns what becomes of the value behind `self`.
inline Value add_add_(Trace& trace, Operand self, Operand other, c10::IValue alpha = 1) {
  static const OpInfo& op = make_op("aten::add_", "Tensor");
  const auto signature = make_signature(op, {an_operand(), an_operand(), a_scalar()}, {}, {true, false});
  return {trace.add_call(signature, {self, other}, alpha, 1, nullptr), 0};
}

} // namespace lazyplug
