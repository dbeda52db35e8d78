#include "lowering/nodes/tile_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/library.h>

#include "lowering/calls/runtime_ops.h"
#include "lowering/fusion/program_numbers.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

// The CPU's kernels raise if the number overflows, rather than compute with infinity.
bool checks_number(Opcode opcode) {
  return opcode == Opcode::kAdd || opcode == Opcode::kSub || opcode == Opcode::kAddcmul || opcode == Opcode::kAddcdiv ||
         opcode == Opcode::kLerp;
}

// The CPU's kernels round it to narrow floats before they compute. Those that multiply in place do.
bool rounds_number(const kernels::Instruction& instruction) {
  return instruction.opcode == Opcode::kAddNumber || instruction.opcode == Opcode::kSubNumber ||
         (instruction.opcode == Opcode::kMulNumber && instruction.out == instruction.inputs[0]);
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
      is_negated_(find_negated_numbers(program_)),
      is_rounded_(program_.num_numbers) {
  for (const kernels::Instruction& instruction : program_.instructions) {
    is_written_[instruction.out] = true;
    if (checks_number(instruction.opcode)) {
      is_checked_[instruction.number] = true;
    }
    if (rounds_number(instruction)) {
      is_rounded_[instruction.number] = true;
    }
  }
}

// Where a program's slots with memory lie.
class TileKernel::Rows {
 public:
  // `first`: the rows of the first slot, like which all others lie.
  Rows(const TileKernel& kernel, c10::ArrayRef<c10::IValue> first)
      : kernel_(kernel),
        first_(first.slice(0, kernel.num_rows_)),
        memory_(kernel.num_rows_ * kernel.program_.num_memory) {}

  c10::ScalarType dtype() const {
    return first(0).scalar_type();
  }
  const at::Tensor& first(size_t row) const {
    return first_[row].toTensor();
  }
  void* const* memory(size_t row) const {
    return &memory_[row * kernel_.program_.num_memory];
  }

  // The rows of some slots, one slot after the other, from this one on.
  void add(size_t first_slot, c10::ArrayRef<c10::IValue> tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i].toTensor();
      const size_t row = i % kernel_.num_rows_;
      const size_t slot = first_slot + i / kernel_.num_rows_;
      check_layout(tensor, first(row), dtype());
      place(slot, row) =
          kernel_.is_written_[slot] ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
    }
  }

  // Slots from this one on are new: their rows.
  c10::List<at::Tensor> add_fresh(size_t first_slot) {
    c10::List<at::Tensor> fresh;
    for (size_t slot = first_slot; slot < kernel_.program_.num_memory; ++slot) {
      for (size_t row = 0; row < kernel_.num_rows_; ++row) {
        const at::Tensor& like = first(row);
        at::Tensor tensor =
            at::detail::empty_strided_cpu(like.sizes(), strides_of_result(like.sizes(), like.strides()), dtype());
        place(slot, row) = tensor.mutable_data_ptr();
        fresh.push_back(std::move(tensor));
      }
    }
    return fresh;
  }

 private:
  void*& place(size_t slot, size_t row) {
    return memory_[row * kernel_.program_.num_memory + slot];
  }

  const TileKernel& kernel_;
  const c10::ArrayRef<c10::IValue> first_;
  std::vector<void*> memory_;
};

void TileKernel::operator()(c10::Stack& stack) const {
  const c10::IValue number_lists = torch::jit::pop(stack);
  const c10::IValue numbers = torch::jit::pop(stack);
  const c10::IValue list = torch::jit::pop(stack);
  const auto tensors = list.toListRef();
  Rows rows(*this, tensors);
  rows.add(0, tensors);
  auto fresh = rows.add_fresh(tensors.size() / num_rows_);
  run(rows, rounded(read_numbers(numbers, number_lists), rows.dtype()));
  stack.emplace_back(std::move(fresh));
}

void TileKernel::update(c10::Stack& stack) const {
  const c10::IValue numbers = torch::jit::pop(stack);
  const c10::IValue read = torch::jit::pop(stack);
  const c10::IValue written = torch::jit::pop(stack);
  Rows rows(*this, written.toListRef());
  rows.add(0, written.toListRef());
  rows.add(written.toListRef().size() / num_rows_, read.toListRef());
  run(rows, rounded(read_flat_numbers(numbers), rows.dtype()));
}

// `numbers` are those of all rows, or of each in turn.
void TileKernel::run(const Rows& rows, const std::vector<double>& numbers) const {
  const size_t step = numbers.size() == program_.num_numbers ? 0 : program_.num_numbers;
  std::vector<kernels::Row> all;
  all.reserve(num_rows_);
  for (size_t row = 0; row < num_rows_; ++row) {
    all.push_back({rows.first(row).numel(), rows.memory(row), numbers.data() + row * step});
  }
  kernels::run(program_, all, rows.dtype(), assembly_.next(program_));
}

std::vector<double> TileKernel::read_flat_numbers(const c10::IValue& numbers) const {
  const auto flat = numbers.toListRef();
  std::vector<double> result;
  if (flat.size() == program_.num_numbers) {
    for (size_t i = 0; i < flat.size(); ++i) {
      result.push_back(read_number(flat[i], i));
    }
    return result;
  }
  const size_t num_lists = (flat.size() - program_.num_numbers) / (num_rows_ - 1);
  const size_t num_singles = program_.num_numbers - num_lists;
  for (size_t row = 0; row < num_rows_; ++row) {
    for (size_t i = 0; i < program_.num_numbers; ++i) {
      const size_t place = i < num_singles ? i : num_singles + (i - num_singles) * num_rows_ + row;
      result.push_back(read_number(flat[place], i));
    }
  }
  return result;
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

// As programs on this dtype are to have them.
std::vector<double> TileKernel::rounded(std::vector<double> numbers, c10::ScalarType dtype) const {
  for (size_t i = 0; kernels::is_narrow_float(dtype) && i < numbers.size(); ++i) {
    const bool is_rounded = is_rounded_[i % program_.num_numbers];
    numbers[i] = is_rounded ? rounded_to(dtype, numbers[i]) : numbers[i];
  }
  return numbers;
}

// As the program's dtype has it.
double TileKernel::read_number(const c10::IValue& number, size_t index) const {
  if (is_checked_[index] && program_.dtype == c10::ScalarType::Float) {
    number.toScalar().toFloat(); // raises
  }
  const double value = number_for(program_.dtype, number);
  return negatable(number, value, is_negated_[index]);
}

kernels::Program parse_program(const std::string& text) {
  auto program = kernels::parse(text);
  TORCH_CHECK(program, "no tile program: ", text);
  return std::move(*program);
}

namespace {

TileKernel pop_kernel(c10::Stack& stack) {
  const std::string text = torch::jit::pop(stack).toStringRef();
  const auto num_rows = static_cast<size_t>(torch::jit::pop(stack).toInt());
  return {parse_program(text), num_rows};
}

void tile_program_op(const c10::OperatorHandle& /*op*/, c10::Stack* stack) {
  pop_kernel (*stack)(*stack);
}

void tile_update_op(const c10::OperatorHandle& /*op*/, c10::Stack* stack) {
  pop_kernel(*stack).update(*stack);
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  m.def(
      "tile_program(Tensor(a!)[] tensors, Scalar[] numbers, Scalar[][] number_lists, int rows, str program) "
      "-> Tensor[]",
      torch::CppFunction::makeFromBoxedFunction<&tile_program_op>());
  m.def("tile_update_(Tensor(a!)[] written, Tensor[] read, Scalar[] numbers, int rows, str program) -> ()");
}

TORCH_LIBRARY_IMPL(lazyplug, CPU, m) {
  m.impl("tile_update_", torch::CppFunction::makeFromBoxedFunction<&tile_update_op>());
}

} // namespace

std::function<void(c10::Stack&)>
tile_update_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& /*geometries*/) {
  constexpr size_t kRows = 3;
  if (op.name() != kTileUpdate) {
    return nullptr;
  }
  const auto constant = [&](size_t input) { return *torch::jit::toIValue(node.input(input)); };
  TileKernel kernel(parse_program(constant(kRows + 1).toStringRef()), static_cast<size_t>(constant(kRows).toInt()));
  return [kernel = std::move(kernel)](c10::Stack& stack) {
    torch::jit::drop(stack, 2);
    kernel.update(stack);
  };
}

} // namespace lazyplug
