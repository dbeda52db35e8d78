#include "lowering/tile_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include "lowering/negated_numbers.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

// The CPU's kernels raise if the number overflows, rather than compute with infinity.
bool checks_number(Opcode opcode) {
  return opcode == Opcode::kAdd || opcode == Opcode::kSub || opcode == Opcode::kAddcmul || opcode == Opcode::kAddcdiv ||
         opcode == Opcode::kLerp;
}

template <typename T>
double convert(const c10::IValue& number, bool is_checked) {
  if (is_checked) {
    return number.toScalar().to<T>();
  }
  return number.isInt() ? static_cast<T>(number.toInt()) : static_cast<T>(number.toDouble());
}

// Without gaps, as the program takes for granted.
void check_layout(const at::Tensor& tensor, const at::Tensor& first, c10::ScalarType dtype) {
  TORCH_INTERNAL_ASSERT(
      tensor.scalar_type() == dtype && tensor.strides() == first.strides() && tensor.sizes() == first.sizes() &&
          tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false(),
      "a tile program on ",
      tensor.sizes(),
      tensor.strides(),
      " beside ",
      first.sizes(),
      first.strides());
}

} // namespace

TileKernel::TileKernel(kernels::Program program, size_t num_rows)
    : program_(std::move(program)),
      num_rows_(num_rows),
      is_written_(program_.num_slots),
      is_checked_(program_.num_numbers),
      is_negated_(find_negated_numbers(program_)) {
  for (const kernels::Instruction& instruction : program_.instructions) {
    is_written_[instruction.out] = true;
    if (checks_number(instruction.opcode)) {
      is_checked_[instruction.number] = true;
    }
  }
}

void TileKernel::operator()(c10::Stack& stack) const {
  const c10::IValue number_lists = torch::jit::pop(stack);
  const c10::IValue numbers = torch::jit::pop(stack);
  const c10::IValue list = torch::jit::pop(stack);
  const auto tensors = list.toListRef();
  const size_t num_memory = program_.num_memory;
  const size_t num_given = tensors.size() / num_rows_;
  const std::vector<double> row_numbers = read_numbers(numbers, number_lists);
  std::vector<void*> memory(num_rows_ * num_memory);
  std::vector<kernels::Row> rows;
  c10::List<at::Tensor> fresh;
  for (size_t slot = 0; slot < num_memory; ++slot) {
    for (size_t row = 0; row < num_rows_; ++row) {
      const at::Tensor& first = tensors[row].toTensor();
      if (slot >= num_given) {
        fresh.push_back(at::detail::empty_strided_cpu(first.sizes(), first.strides(), program_.dtype));
        memory[row * num_memory + slot] = fresh.get(fresh.size() - 1).mutable_data_ptr();
        continue;
      }
      const at::Tensor& tensor = tensors[slot * num_rows_ + row].toTensor();
      check_layout(tensor, first, program_.dtype);
      memory[row * num_memory + slot] =
          is_written_[slot] ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
    }
  }
  for (size_t row = 0; row < num_rows_; ++row) {
    rows.push_back(
        {tensors[row].toTensor().numel(), &memory[row * num_memory], row_numbers.data() + row * program_.num_numbers});
  }
  kernels::run(program_, rows, assembly_.next(program_));
  stack.emplace_back(std::move(fresh));
}

std::vector<double> TileKernel::read_numbers(const c10::IValue& numbers, const c10::IValue& lists) const {
  const auto singles = numbers.toListRef();
  const auto by_row = lists.toListRef();
  std::vector<double> result;
  result.reserve(num_rows_ * program_.num_numbers);
  for (size_t row = 0; row < num_rows_; ++row) {
    for (size_t i = 0; i < singles.size(); ++i) {
      result.push_back(row == 0 ? read_number(singles[i], i) : result[i]);
    }
    for (size_t i = 0; i < by_row.size(); ++i) {
      result.push_back(read_number(by_row[i].toListRef()[row], singles.size() + i));
    }
  }
  return result;
}

// As the program's dtype has it.
double TileKernel::read_number(const c10::IValue& number, size_t index) const {
  const double value = program_.dtype == c10::ScalarType::Float ? convert<float>(number, is_checked_[index])
                                                                : convert<double>(number, is_checked_[index]);
  return negatable(number, value, is_negated_[index]);
}

namespace {

void tile_program_op(const c10::OperatorHandle& /*op*/, c10::Stack* stack) {
  const std::string text = torch::jit::pop(*stack).toStringRef();
  const auto num_rows = static_cast<size_t>(torch::jit::pop(*stack).toInt());
  auto program = kernels::parse(text);
  TORCH_CHECK(program, "no tile program: ", text);
  TileKernel(std::move(*program), num_rows)(*stack);
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  m.def(
      "tile_program(Tensor(a!)[] tensors, Scalar[] numbers, Scalar[][] number_lists, int rows, str program) "
      "-> Tensor[]",
      torch::CppFunction::makeFromBoxedFunction<&tile_program_op>());
}

} // namespace
} // namespace lazyplug
