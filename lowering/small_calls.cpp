#include "lowering/small_calls.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lowering/fusion/pointwise_ops.h"
#include "lowering/light_calls.h"
#include "lowering/program_numbers.h"
#include "lowering/small_product.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// Elements. Larger ones are PyTorch's, as they are where they stand alone in a graph.
constexpr int64_t kMaxElements = 4'096;

// Null: it is no tensor, or nothing that a kernel could be told where it is.
const c10::TensorImpl* plain_tensor(const c10::IValue& argument) {
  if (!argument.isTensor()) {
    return nullptr;
  }
  const auto* tensor = argument.unsafeToTensorImpl();
  const bool is_plain =
      tensor->has_storage() && tensor->layout() == at::kStrided && !tensor->is_conj() && !tensor->is_neg();
  return is_plain ? tensor : nullptr;
}

// ---- one op, element by element ----

// One instruction, after those that make numbers of its inputs.
class SmallPointwise final : public SmallCalls {
 public:
  static bool can_be(const PointwiseOp* op) {
    return op && (op->kind == PointwiseOp::Kind::kComputes || op->kind == PointwiseOp::Kind::kFunction) &&
           !kernels::is_about_rows(op->opcode) && !op->variant &&
           std::strspn(op->args, "tns") == std::strlen(op->args) && op->args[0] == 't';
  }

  explicit SmallPointwise(const PointwiseOp& op)
      : args_(op.args),
        is_function_(op.kind == PointwiseOp::Kind::kFunction),
        has_scale_(op.opcode == kernels::Opcode::kAdd || op.opcode == kernels::Opcode::kSub),
        multiplies_(op.opcode == kernels::Opcode::kTanhBackward),
        subtracts_(op.opcode == kernels::Opcode::kSub) {
    for (size_t i = 0; i < programs_.size(); ++i) {
      programs_[i] = make_program(op, i % kNumPatterns, i < kNumPatterns ? at::kFloat : at::kDouble);
    }
  }

 private:
  // Of which inputs numbers are.
  static constexpr size_t kNumPatterns = 8;

  struct Operands {
    const c10::TensorImpl* first = nullptr;
    c10::SmallVector<const c10::TensorImpl*, 3> tensors;
    c10::SmallVector<double, 4> inputs; // numbers
    c10::SmallVector<double, 2> own;    // likewise, the instruction's
    size_t pattern = 0;
  };

  kernels::Program make_program(const PointwiseOp& op, size_t pattern, c10::ScalarType dtype) const {
    const size_t num_inputs = kernels::num_inputs(op.opcode);
    kernels::Program program;
    program.dtype = dtype;
    kernels::Instruction computes{op.opcode, 0};
    size_t num_tensors = 0;
    for (size_t i = 0; i < num_inputs; ++i) {
      num_tensors += (pattern >> i & 1) == 0 ? 1 : 0;
    }
    size_t slot = 0;
    size_t number_slot = num_tensors + 1;
    for (size_t i = 0; i < num_inputs; ++i) {
      const bool is_number = (pattern >> i & 1) != 0;
      computes.inputs[i] = static_cast<kernels::Slot>(is_number ? number_slot : slot);
      if (is_number) {
        program.instructions.push_back(
            {kernels::Opcode::kNumber, static_cast<kernels::Slot>(number_slot++), {}, program.num_numbers++});
      } else {
        ++slot;
      }
    }
    computes.out = static_cast<kernels::Slot>(num_tensors);
    computes.number = program.num_numbers;
    computes.second_number = program.num_numbers + 1;
    program.num_numbers += kernels::traits(op.opcode).num_numbers;
    program.num_memory = static_cast<uint8_t>(num_tensors + 1);
    program.num_slots = static_cast<uint8_t>(number_slot);
    program.instructions.push_back(computes);
    return program;
  }

  // Whether a tensor lies as the first one.
  static bool fits(const c10::TensorImpl& tensor, const c10::TensorImpl* first) {
    if (!first) {
      return kernels::can_compute_in(c10::typeMetaToScalarType(tensor.dtype())) && tensor.numel() != 0 &&
             tensor.numel() <= kMaxElements && tensor.is_non_overlapping_and_dense();
    }
    return tensor.dtype() == first->dtype() && tensor.sizes() == first->sizes() && tensor.strides() == first->strides();
  }

  // Python's number beside a tensor.
  bool add_input(const c10::IValue& argument, Operands& operands) const {
    const size_t input = operands.tensors.size() + operands.inputs.size();
    std::optional<double> number = real_number(argument);
    if (const auto* tensor = number ? nullptr : plain_tensor(argument)) {
      if (!tensor->is_wrapped_number()) {
        const bool is_good = fits(*tensor, operands.first);
        operands.first = operands.first ? operands.first : tensor;
        operands.tensors.push_back(tensor);
        return is_good;
      }
      number = value_of(*tensor);
    }
    if (!number || is_function_) {
      return false;
    }
    operands.inputs.push_back(*number);
    operands.pattern |= size_t{1} << input;
    return true;
  }

  static std::optional<double> value_of(const c10::TensorImpl& number) {
    if (!number.is_cpu()) {
      return std::nullopt;
    }
    if (number.dtype() == at::kDouble) {
      return *static_cast<const double*>(number.data());
    }
    return number.dtype() == at::kLong ? std::optional(static_cast<double>(*static_cast<const int64_t*>(number.data())))
                                       : std::nullopt;
  }

  bool add(char arg, const c10::IValue& argument, Operands& operands) const {
    if (arg == 's') {
      const auto number = real_number(argument);
      operands.own.push_back(number ? negatable(argument, *number, subtracts_) : 0);
      return number.has_value();
    }
    return add_input(argument, operands);
  }

  // The CPU rounds products with a number by its place: see PointwiseGroup::rounds_by_place().
  bool rounds_by_place(const Operands& operands) const {
    const bool has_product = (has_scale_ && operands.own[0] != 1) || multiplies_;
    return has_product && (operands.pattern & 2) != 0;
  }

  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    Operands operands;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!add(args_[i], arguments[i], operands)) {
        return {};
      }
    }
    const auto* first = operands.first;
    if (!first || rounds_by_place(operands) || (is_function_ && first->dtype() != at::kFloat)) {
      return {};
    }
    std::array<void*, 4> memory{};
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
      memory[i] = const_cast<void*>(memory_of(*operands.tensors[i]));
      if (!memory[i]) {
        return {};
      }
    }
    const auto dtype = c10::typeMetaToScalarType(first->dtype());
    at::Tensor result = first->is_contiguous() ? at::detail::empty_cpu(first->sizes(), dtype)
                                               : at::detail::empty_strided_cpu(first->sizes(), first->strides(), dtype);
    memory[operands.tensors.size()] = result.mutable_data_ptr();
    auto& numbers = operands.inputs;
    numbers.append(operands.own.begin(), operands.own.end());
    const kernels::Row row{first->numel(), memory.data(), numbers.data()};
    kernels::run(programs_[operands.pattern + (dtype == at::kDouble ? kNumPatterns : 0)], row);
    return result;
  }

  const char* const args_;
  const bool is_function_;
  const bool has_scale_;
  const bool multiplies_; // its second input, before it adds
  const bool subtracts_;
  std::array<kernels::Program, 2 * kNumPatterns> programs_;
};

// ---- products ----

class SmallProducts final : public SmallCalls {
 public:
  explicit SmallProducts(const OpInfo& op) : op_(op), adds_(op.first_factor() == 1) {}

 private:
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* bias = adds_ ? plain_tensor(arguments[0]) : nullptr;
    const auto* a = plain_tensor(arguments[adds_ ? 1 : 0]);
    const auto* b = plain_tensor(arguments[adds_ ? 2 : 1]);
    const auto beta = adds_ ? real_number(arguments[3]) : 0;
    const auto alpha = adds_ ? real_number(arguments[4]) : 1;
    if (!a || !b || a->dim() != 2 || b->dim() != 2 || (adds_ && !bias) || !beta || !alpha) {
      return {};
    }
    const Geometry first = Geometry::of(*a);
    const Geometry second = Geometry::of(*b);
    const Geometry result = Geometry::contiguous(first.dtype, {first.sizes[0], second.sizes[1]});
    const auto added = adds_ ? std::optional(Geometry::of(*bias)) : std::nullopt;
    const auto product = SmallProduct::plan(added ? &*added : nullptr, first, second, result);
    if (!product || !product->goes(*alpha, *beta)) {
      return {};
    }
    const void* first_memory = memory_of(*a);
    const void* second_memory = memory_of(*b);
    const void* bias_memory = adds_ ? memory_of(*bias) : nullptr;
    const ThreadsOfCall threads(op_, arguments); // not before: what is waited for has its own number
    return first_memory && second_memory && (!adds_ || bias_memory)
               ? product->run(*alpha, first_memory, second_memory, bias_memory)
               : at::Tensor();
  }

  const OpInfo& op_;
  const bool adds_;
};

} // namespace

std::unique_ptr<const SmallCalls> SmallCalls::make(const OpInfo& op) {
  if (op.name() == "aten::mm" || op.name() == "aten::addmm") {
    return std::make_unique<SmallProducts>(op);
  }
  const PointwiseOp* pointwise = is_function(op) ? find_function(op, {}) : find_pointwise_op(op);
  return SmallPointwise::can_be(pointwise) && !op.writes() ? std::make_unique<SmallPointwise>(*pointwise) : nullptr;
}

at::Tensor SmallCalls::run(Arguments arguments, MemoryOf memory_of) const {
  return computes_functions() ? compute(arguments, memory_of) : at::Tensor();
}

} // namespace lazyplug
