#include "lowering/function_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "kernels/pointwise.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

std::string_view variant_of(Arguments arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isString()) {
      return argument.toStringRef();
    }
  }
  return {};
}

bool is_computable(const c10::IValue& argument, const c10::TensorImpl* first) {
  if (!argument.isTensor() || !argument.toTensor().defined()) {
    return false;
  }
  const at::Tensor& tensor = argument.toTensor();
  return tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat && !tensor.is_conj() &&
         !tensor.is_neg() && tensor.numel() > 0 && tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense() &&
         (!first || (tensor.sizes() == first->sizes() && tensor.strides() == first->strides()));
}

// Of the arguments, if all are as they must be.
struct Operands {
  c10::SmallVector<at::Tensor, 2> tensors;
  c10::SmallVector<double, 2> numbers;

  bool add(char kind, const c10::IValue& argument) {
    if (kind == 't' && is_computable(argument, tensors.empty() ? nullptr : tensors[0].unsafeGetTensorImpl())) {
      tensors.push_back(argument.toTensor());
      return true;
    }
    if (kind == 's' && (argument.isDouble() || argument.isInt())) {
      numbers.push_back(argument.toScalar().toDouble());
      return true;
    }
    return kind == '-';
  }
};

at::Tensor compute(kernels::Opcode opcode, const Operands& operands) {
  const at::Tensor& first = operands.tensors[0];
  at::Tensor result = at::detail::empty_strided_cpu(first.sizes(), first.strides(), at::kFloat);
  const auto num_inputs = static_cast<uint8_t>(operands.tensors.size());
  kernels::Instruction instruction{opcode, num_inputs, {0, 1, 2}, 0, 1};
  const kernels::Program program{
      at::kFloat,
      static_cast<uint8_t>(num_inputs + 1),
      static_cast<uint8_t>(num_inputs + 1),
      static_cast<uint8_t>(operands.numbers.size()),
      {instruction}};
  std::vector<kernels::PointwiseSpace::Input> inputs;
  c10::SmallVector<kernels::Memory, 3> memory;
  for (const at::Tensor& tensor : operands.tensors) {
    inputs.push_back({0, c10::DimVector(tensor.strides())});
    memory.push_back({const_cast<void*>(tensor.const_data_ptr()), at::kFloat});
  }
  memory.push_back({result.mutable_data_ptr(), at::kFloat});
  const kernels::PointwiseSpace space(first.sizes(), first.strides(), inputs);
  kernels::run(program, space, memory, operands.numbers.data());
  return result;
}

} // namespace

bool is_function_here(const OpInfo& op) {
  return computes_functions() && is_function(op);
}

bool run_function(const OpInfo& op, c10::Stack& stack) {
  if (!is_function_here(op)) {
    return false;
  }
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const PointwiseOp* row = find_function(op, variant_of(arguments));
  Operands operands;
  for (size_t i = 0; row && i < arguments.size(); ++i) {
    if (!operands.add(row->args[i], arguments[i])) {
      return false;
    }
  }
  if (!row) {
    return false;
  }
  at::Tensor result = compute(row->opcode, operands);
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(result));
  return true;
}

} // namespace lazyplug
