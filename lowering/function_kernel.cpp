#include "lowering/function_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <optional>

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
         !tensor.is_neg() && tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense() &&
         (!first || (tensor.sizes() == first->sizes() && tensor.strides() == first->strides()));
}

// Of the arguments, if all are as they must be.
struct Operands {
  c10::SmallVector<at::Tensor, 2> tensors;
  c10::SmallVector<double, 2> numbers;

  bool add(char arg, const c10::IValue& argument) {
    if (arg == 't' && is_computable(argument, tensors.empty() ? nullptr : tensors[0].unsafeGetTensorImpl())) {
      tensors.push_back(argument.toTensor());
      return true;
    }
    if (arg == 's' && (argument.isDouble() || argument.isInt())) {
      numbers.push_back(argument.toScalar().toDouble());
      return true;
    }
    return arg == '-' || (!tensors.empty() && is_expected(argument, arg, tensors[0].sizes().size()));
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

// Of each tensor, if all are as they must be.
std::optional<c10::List<at::Tensor>> compute_list(kernels::Opcode opcode, const c10::IValue& tensors) {
  c10::List<at::Tensor> results;
  for (const c10::IValue& tensor : tensors.toListRef()) {
    Operands operands;
    if (!operands.add('t', tensor)) {
      return std::nullopt;
    }
    results.push_back(compute(opcode, operands));
  }
  return results;
}

std::optional<c10::IValue> compute(const PointwiseOp& row, Arguments arguments) {
  if (row.args[0] == 'l') {
    auto results = compute_list(row.opcode, arguments[0]);
    return results ? std::optional<c10::IValue>(std::move(*results)) : std::nullopt;
  }
  Operands operands;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!operands.add(row.args[i], arguments[i])) {
      return std::nullopt;
    }
  }
  const at::Tensor& first = operands.tensors[0];
  return takes_rows(row, first.sizes(), first.strides()) ? std::optional<c10::IValue>(compute(row.opcode, operands))
                                                         : std::nullopt;
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
  auto result = row ? compute(*row, arguments) : std::nullopt;
  if (!result) {
    return false;
  }
  torch::jit::drop(stack, op.num_args());
  stack.push_back(std::move(*result));
  return true;
}

} // namespace lazyplug
