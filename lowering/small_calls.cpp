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
  static bool can_be(const OpInfo& info, const PointwiseOp* op) {
    const bool writes_first = info.writes() && info.return_aliases().size() == 1 && info.return_aliases()[0] == 0;
    return op &&
           (op->kind == PointwiseOp::Kind::kComputes || (op->kind == PointwiseOp::Kind::kFunction && !info.writes())) &&
           (!info.writes() || writes_first) && !kernels::is_about_rows(op->opcode) && !op->variant &&
           std::strspn(op->args, "tns") == std::strlen(op->args) && op->args[0] == 't';
  }

  SmallPointwise(const OpInfo& info, const PointwiseOp& op)
      : args_(op.args),
        writes_(info.writes()),
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
    bool is_flat = true; // all lie alike, without gaps; else they are rows
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

  // A matrix whose result is contiguous.
  static bool has_rows(const c10::TensorImpl& tensor) {
    const auto sizes = tensor.sizes();
    return sizes.size() == 2 && sizes[0] > 1 && sizes[1] > 1 && tensor.strides()[1] == 1 &&
           tensor.strides()[0] >= sizes[1];
  }

  // Notes how the tensor lies beside the first one, itself perhaps. False if the kernel does not go for it.
  static bool fit(const c10::TensorImpl& tensor, Operands& operands) {
    if (!operands.first) {
      operands.first = &tensor;
      operands.is_flat = tensor.is_non_overlapping_and_dense();
      if (!kernels::can_compute_in(c10::typeMetaToScalarType(tensor.dtype())) || tensor.numel() == 0 ||
          tensor.numel() > kMaxElements) {
        return false;
      }
    } else if (tensor.dtype() != operands.first->dtype() || tensor.sizes() != operands.first->sizes()) {
      return false;
    } else if (operands.is_flat && tensor.strides() != operands.first->strides()) {
      operands.is_flat = false;
      return has_rows(*operands.first) && has_rows(tensor);
    }
    return operands.is_flat || has_rows(tensor);
  }

  // Python's number beside a tensor.
  bool add_input(const c10::IValue& argument, Operands& operands) const {
    const size_t input = operands.tensors.size() + operands.inputs.size();
    std::optional<double> number = real_number(argument);
    if (const auto* tensor = number ? nullptr : plain_tensor(argument)) {
      if (!tensor->is_wrapped_number()) {
        operands.tensors.push_back(tensor);
        return fit(*tensor, operands);
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
    const bool is_no_function = is_function_ && (!operands.is_flat || (first && first->dtype() != at::kFloat));
    if (!first || is_no_function || rounds_by_place(operands)) {
      return {};
    }
    // Memory that is written is known first: to make it may give the tensor another.
    if (writes_ && (arguments[0].unsafeToTensorImpl() != first || overlaps_another(operands))) {
      return {};
    }
    std::array<void*, 4> memory{};
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
      const bool is_written = writes_ && operands.tensors[i] == first;
      memory[i] = memory_of(*operands.tensors[i], is_written);
      if (!memory[i]) {
        return {};
      }
    }
    at::Tensor result = writes_ ? arguments[0].toTensor() : make_result(*first, operands.is_flat);
    operands.tensors.push_back(result.unsafeGetTensorImpl());
    memory[operands.tensors.size() - 1] = writes_ ? memory[0] : result.mutable_data_ptr();
    compute(operands, memory);
    return result;
  }

  // The written tensor's memory may be read as the very tensor, not otherwise.
  static bool overlaps_another(const Operands& operands) {
    return std::any_of(operands.tensors.begin(), operands.tensors.end(), [&](const c10::TensorImpl* tensor) {
      return tensor != operands.first && tensor->storage().is_alias_of(operands.first->storage());
    });
  }

  static at::Tensor make_result(const c10::TensorImpl& like, bool is_flat) {
    const auto dtype = c10::typeMetaToScalarType(like.dtype());
    return is_flat && !like.is_contiguous() ? at::detail::empty_strided_cpu(like.sizes(), like.strides(), dtype)
                                            : at::detail::empty_cpu(like.sizes(), dtype);
  }

  // The last tensor is the result.
  void compute(Operands& operands, const std::array<void*, 4>& memory) const {
    const bool is_double = operands.first->dtype() == at::kDouble;
    const kernels::Program& program = programs_[operands.pattern + (is_double ? kNumPatterns : 0)];
    auto& numbers = operands.inputs;
    numbers.append(operands.own.begin(), operands.own.end());
    if (operands.is_flat) {
      return kernels::run(program, kernels::Row{operands.first->numel(), memory.data(), numbers.data()});
    }
    const auto sizes = operands.first->sizes();
    const size_t itemsize = operands.first->itemsize();
    const size_t num_memory = operands.tensors.size();
    c10::SmallVector<void*, 64> places;
    for (int64_t row = 0; row < sizes[0]; ++row) {
      for (size_t i = 0; i < num_memory; ++i) {
        places.push_back(static_cast<char*>(memory[i]) + row * operands.tensors[i]->strides()[0] * itemsize);
      }
    }
    c10::SmallVector<kernels::Row, 16> rows;
    for (int64_t row = 0; row < sizes[0]; ++row) {
      rows.push_back({sizes[1], places.data() + row * num_memory, numbers.data()});
    }
    kernels::run(program, rows);
  }

  const char* const args_;
  const bool writes_; // its first tensor
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
    const void* first_memory = memory_of(*a, /*written=*/false);
    const void* second_memory = memory_of(*b, /*written=*/false);
    const void* bias_memory = adds_ ? memory_of(*bias, /*written=*/false) : nullptr;
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
  return SmallPointwise::can_be(op, pointwise) ? std::make_unique<SmallPointwise>(op, *pointwise) : nullptr;
}

at::Tensor SmallCalls::run(Arguments arguments, MemoryOf memory_of) const {
  return computes_functions() ? compute(arguments, memory_of) : at::Tensor();
}

} // namespace lazyplug
