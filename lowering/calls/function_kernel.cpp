#include "lowering/calls/function_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "kernels/assembly.h"
#include "kernels/pointwise.h"
#include "lowering/calls/norm_gradient_kernel.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/fusion/function_layout.h"
#include "lowering/fusion/layer_norm.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/fusion/program_numbers.h"

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

FunctionLayout::Tensor layout_of(const at::Tensor& tensor) {
  return {
      tensor.scalar_type(),
      tensor.sizes(),
      tensor.strides(),
      tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense()};
}

// Of the arguments, if all are as they must be.
struct Operands {
  explicit Operands(const PointwiseOp& function) : layout(function) {}

  FunctionLayout layout;
  c10::SmallVector<at::Tensor, 3> tensors; // those like a row come last
  c10::SmallVector<double, 2> numbers;
  bool keeps_dim = false;

  bool add(char arg, const c10::IValue& argument) {
    if (arg == 't' && is_there(argument)) {
      const at::Tensor& tensor = tensors.emplace_back(argument.toTensor());
      return is_plain(tensor) && layout.add(layout_of(tensor));
    }
    if (arg == 's') {
      const auto number = real_number(argument);
      numbers.push_back(number ? number_for(at::kFloat, argument) : 0);
      return number && !overflows_float(*number);
    }
    if (arg == 'c') {
      const auto number = correction(argument);
      numbers.push_back(static_cast<double>(number.value_or(0)));
      return number.has_value();
    }
    if (arg == 'o') {
      return add_row(argument);
    }
    keeps_dim |= arg == 'k' && argument.isBool() && argument.toBool();
    return arg == '-' || (!tensors.empty() && is_expected(argument, arg, layout.result().dtype, tensors[0].sizes()));
  }

 private:
  bool add_row(const c10::IValue& argument) {
    if (!is_there(argument)) {
      layout.add_missing_row();
      return true;
    }
    const at::Tensor& row = tensors.emplace_back(argument.toTensor());
    return is_plain(row) && layout.add_row(layout_of(row));
  }
};

// The slots are the operands, then the results. `assembled`: the machine code of that program, if it has some.
void run(
    std::vector<kernels::Instruction> instructions,
    const Operands& operands,
    c10::ArrayRef<at::Tensor> results,
    const kernels::AssembledLater* assembled = nullptr) {
  const auto num_slots = static_cast<uint8_t>(operands.tensors.size() + results.size());
  const kernels::Program program{
      at::kFloat,
      num_slots,
      num_slots,
      static_cast<uint8_t>(operands.numbers.size()),
      std::move(instructions)};
  std::vector<kernels::PointwiseSpace::Input> inputs;
  c10::SmallVector<kernels::Memory, 6> memory;
  const at::Tensor& first = operands.tensors[0];
  for (size_t i = 0; i < operands.tensors.size(); ++i) {
    const at::Tensor& tensor = operands.tensors[i];
    c10::DimVector strides(first.dim(), 0);
    if (i + operands.layout.num_rows() < operands.tensors.size()) {
      strides = c10::DimVector(tensor.strides());
    } else {
      strides.back() = 1;
    }
    inputs.push_back({0, std::move(strides)});
    memory.push_back({const_cast<void*>(tensor.const_data_ptr()), tensor.scalar_type()});
  }
  for (const at::Tensor& result : results) {
    memory.push_back({result.mutable_data_ptr(), result.scalar_type()});
  }
  const kernels::PointwiseSpace space(first.sizes(), operands.layout.result().strides, inputs);
  const kernels::Assembly* const assembly = assembled ? assembled->next(program) : nullptr;
  kernels::run(program, space, memory, operands.numbers.data(), assembly);
}

at::Tensor make_result(kernels::Opcode opcode, const Operands& operands) {
  const at::Tensor& first = operands.tensors[0];
  if (!kernels::reduces_rows(opcode)) {
    return at::detail::empty_strided_cpu(
        first.sizes(),
        strides_of_result(first.sizes(), operands.layout.result().strides),
        operands.layout.result().dtype);
  }
  c10::DimVector sizes(first.sizes().begin(), first.sizes().end() - 1);
  if (operands.keeps_dim) {
    sizes.push_back(1);
  }
  return at::detail::empty_cpu(sizes, at::kFloat);
}

at::Tensor compute(kernels::Opcode opcode, const Operands& operands) {
  at::Tensor result = make_result(opcode, operands);
  run({{opcode, static_cast<uint8_t>(operands.tensors.size()), {0, 1, 2}, 0, 1}}, operands, result);
  return result;
}

std::vector<at::Tensor> compute_layer_norm(const Operands& operands) {
  using kernels::Instruction;
  using kernels::Opcode;
  using kernels::Slot;
  const at::Tensor& first = operands.tensors[0];
  c10::DimVector sizes(first.sizes());
  sizes.back() = 1;
  const auto make = [](c10::IntArrayRef sizes) -> at::Tensor { return at::detail::empty_cpu(sizes, at::kFloat); };
  const std::vector<at::Tensor> results{make(first.sizes()), make(sizes), make(sizes)};
  const auto result = static_cast<Slot>(operands.tensors.size());
  std::vector<Instruction> instructions;
  const auto add = [&](Opcode opcode, std::initializer_list<Slot> sources) {
    const auto makes = opcode == Opcode::kRowCenter ? result + 1 : opcode == Opcode::kRowRstd ? result + 2 : result;
    Instruction& next = instructions.emplace_back(Instruction{opcode, static_cast<Slot>(makes)});
    std::copy(sources.begin(), sources.end(), next.inputs);
    return next.out;
  };
  const auto parameter = [&](Slot slot) { return slot < result ? std::optional(slot) : std::nullopt; };
  add_layer_norm(Slot{0}, parameter(1), parameter(2), add);
  // By the number of parameters. Never destroyed: workers may run while the process ends.
  static const auto& assembled = *new std::array<kernels::AssembledLater, 3>();
  run(std::move(instructions), operands, results, &assembled.at(operands.layout.num_rows()));
  return results;
}

// Of each tensor, if all are as they must be.
std::optional<c10::List<at::Tensor>> compute_list(const PointwiseOp& row, const c10::IValue& tensors) {
  c10::List<at::Tensor> results;
  for (const c10::IValue& tensor : tensors.toListRef()) {
    Operands operands(row);
    if (!operands.add('t', tensor)) {
      return std::nullopt;
    }
    results.push_back(compute(row.opcode, operands));
  }
  return results;
}

// Empty: the call is none that is computed here.
std::vector<c10::IValue> compute(const PointwiseOp& row, Arguments arguments) {
  if (row.args[0] == 'l') {
    auto results = compute_list(row, arguments[0]);
    return results ? std::vector<c10::IValue>{std::move(*results)} : std::vector<c10::IValue>();
  }
  Operands operands(row);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!operands.add(row.args[i], arguments[i])) {
      return {};
    }
  }
  const at::Tensor& first = operands.tensors[0];
  // There is nothing to compute of an empty one, and PyTorch's kernel gives it other strides.
  if (first.numel() == 0) {
    return {};
  }
  if (row.is_layer_norm()) {
    const auto results = compute_layer_norm(operands);
    return {results.begin(), results.end()};
  }
  return {compute(row.opcode, operands)};
}

} // namespace

bool is_function_here(const OpInfo& op) {
  return computes_functions() && (is_function(op) || is_norm_gradient(op));
}

bool run_function(const OpInfo& op, c10::Stack& stack) {
  if (!is_function_here(op)) {
    return false;
  }
  if (is_norm_gradient(op)) {
    return run_norm_gradient(stack);
  }
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const PointwiseOp* row = find_function(op, variant_of(arguments));
  auto results = row ? compute(*row, arguments) : std::vector<c10::IValue>();
  if (results.empty()) {
    return false;
  }
  torch::jit::drop(stack, op.num_args());
  stack.insert(stack.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
  return true;
}

} // namespace lazyplug
