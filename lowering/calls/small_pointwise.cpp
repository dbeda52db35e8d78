#include "lowering/calls/small_pointwise.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "lowering/calls/program_numbers.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// What a constant argument says of the result, by the argument's name. Each has a value with which the result is as
// the first tensor is.
enum class Says : uint8_t { kDtype, kLayout, kDevice, kPinned, kFormat, kNothing };

std::optional<Says> says(std::string_view argument) {
  return argument == "dtype"           ? std::optional(Says::kDtype)
         : argument == "layout"        ? std::optional(Says::kLayout)
         : argument == "device"        ? std::optional(Says::kDevice)
         : argument == "pin_memory"    ? std::optional(Says::kPinned)
         : argument == "memory_format" ? std::optional(Says::kFormat)
         : argument == "non_blocking"  ? std::optional(Says::kNothing)
                                       : std::nullopt;
}

bool says_the_same(Says says, const c10::IValue& constant, const c10::TensorImpl& tensor) {
  if (constant.isNone() || says == Says::kNothing) {
    return true;
  }
  switch (says) {
    case Says::kDtype:
      return constant.toScalarType() == c10::typeMetaToScalarType(tensor.dtype());
    case Says::kLayout:
      return constant.toLayout() == at::kStrided;
    case Says::kDevice:
      return constant.toDevice() == tensor.device();
    case Says::kPinned:
      return !constant.toBool();
    default:
      return constant.toMemoryFormat() == at::MemoryFormat::Preserve;
  }
}

// One instruction, after those that make numbers of its inputs.
class SmallPointwise final : public SmallCalls {
 public:
  static bool can_be(const OpInfo& info, const PointwiseOp* op) {
    const bool writes_first = info.writes() && info.return_aliases().size() == 1 && info.return_aliases()[0] == 0;
    if (!op || (info.writes() && !writes_first) || kernels::is_about_rows(op->opcode) || op->variant ||
        (op->args[0] != 't' && op->args[0] != '.')) {
      return false;
    }
    for (size_t i = 0; op->args[i] != '\0'; ++i) {
      const bool is_known = op->args[i] == '-' ? says(info.handle().schema().arguments()[i].name()).has_value()
                                               : std::strchr("tns.p", op->args[i]) != nullptr;
      if (!is_known) {
        return false;
      }
    }
    switch (op->kind) {
      case PointwiseOp::Kind::kComputes:
      case PointwiseOp::Kind::kSwapped:
        return true;
      case PointwiseOp::Kind::kFunction:
      case PointwiseOp::Kind::kCompares:
      case PointwiseOp::Kind::kPower:
        return !info.writes();
      default:
        return false;
    }
  }

  SmallPointwise(const OpInfo& info, const PointwiseOp& op)
      : args_(op.args),
        writes_(info.writes()),
        kind_(op.kind),
        is_function_(op.kind == PointwiseOp::Kind::kFunction),
        has_scale_(op.opcode == kernels::Opcode::kAdd || op.opcode == kernels::Opcode::kSub),
        multiplies_(op.opcode == kernels::Opcode::kTanhBackward),
        subtracts_(op.opcode == kernels::Opcode::kSub) {
    for (size_t i = 0; args_[i] != '\0'; ++i) {
      constants_.push_back(says(info.handle().schema().arguments()[i].name()).value_or(Says::kNothing));
      keeps_strides_ |= args_[i] == '-' && constants_.back() == Says::kFormat;
    }
    for (size_t i = 0; i < programs_.size(); ++i) {
      PointwiseOp row = op;
      const bool is_power = op.kind == PointwiseOp::Kind::kPower;
      row.opcode = is_power ? kernels::kPowers[i % kNumPatterns % kernels::kPowers.size()].opcode : op.opcode;
      programs_[i] = make_program(row, is_power ? 0 : i % kNumPatterns, i < kNumPatterns ? at::kFloat : at::kDouble);
    }
  }

 private:
  // Of which inputs numbers are; or, of a power, which one it is.
  static constexpr size_t kNumPatterns = 8;
  static_assert(kernels::kPowers.size() <= kNumPatterns);

  struct Operands {
    const c10::TensorImpl* first = nullptr; // that is read, or written, or like which the result is
    bool is_flat = true;                    // all lie alike, without gaps; else they are rows
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
    if (op.kind == PointwiseOp::Kind::kSwapped) {
      std::swap(computes.inputs[0], computes.inputs[1]);
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

  // Where it depends on the other operands which strides dimensions of one element get.
  static bool is_ambiguous(const c10::TensorImpl& tensor) {
    const auto sizes = tensor.sizes();
    return std::find(sizes.begin(), sizes.end(), 1) != sizes.end() &&
           !(tensor.is_contiguous() &&
             tensor.strides() == c10::IntArrayRef(strides_of_result(sizes, tensor.strides())));
  }

  // Notes how the tensor lies beside the first one, itself perhaps. False if the kernel does not go for it.
  bool fit(const c10::TensorImpl& tensor, Operands& operands) const {
    if (!operands.first) {
      operands.first = &tensor;
      operands.is_flat = tensor.is_non_overlapping_and_dense();
      if (!kernels::can_compute_in(c10::typeMetaToScalarType(tensor.dtype())) || tensor.numel() == 0 ||
          tensor.numel() > kMaxElements || (operands.is_flat && !writes_ && is_ambiguous(tensor))) {
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

  bool add(size_t place, const c10::IValue& argument, Operands& operands) const {
    const char arg = args_[place];
    if (arg == '-') {
      return says_the_same(constants_[place], argument, *operands.first);
    }
    if (arg == '.') {
      const auto* tensor = plain_tensor(argument);
      return tensor && fit(*tensor, operands);
    }
    if (arg == 'p') {
      const auto opcode = power_opcode(argument);
      while (opcode && kernels::kPowers[operands.pattern].opcode != *opcode) {
        ++operands.pattern;
      }
      return opcode.has_value();
    }
    if (arg == 's') {
      const auto number = real_number(argument);
      operands.own.push_back(number ? negatable(argument, *number, subtracts_) : 0);
      return number && !(operands.first->dtype() == at::kFloat && overflows_float(*number));
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
      if (!add(i, arguments[i], operands)) {
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
    void* const written = writes_ ? memory_of(*first, /*written=*/true) : nullptr;
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
      const bool is_written = writes_ && operands.tensors[i] == first;
      memory[i] = is_written ? written : memory_of(*operands.tensors[i], /*written=*/false);
      if (!memory[i]) {
        return {};
      }
    }
    if (writes_ && !written) {
      return {};
    }
    at::Tensor result = writes_ ? arguments[0].toTensor() : make_result(*first, operands.is_flat);
    operands.tensors.push_back(result.unsafeGetTensorImpl());
    memory[operands.tensors.size() - 1] = writes_ ? written : result.mutable_data_ptr();
    compute(operands, memory);
    return kind_ == PointwiseOp::Kind::kCompares ? truths_of(result) : result;
  }

  // Numbers, 0 and 1, become truths.
  static at::Tensor truths_of(const at::Tensor& numbers) {
    at::Tensor truths = at::detail::empty_strided_cpu(numbers.sizes(), numbers.strides(), at::kBool);
    bool* to = truths.mutable_data_ptr<bool>();
    const auto convert = [&](const auto* from) {
      std::transform(from, from + numbers.numel(), to, [](auto number) { return number != 0; });
    };
    numbers.scalar_type() == at::kDouble ? convert(numbers.const_data_ptr<double>())
                                         : convert(numbers.const_data_ptr<float>());
    return truths;
  }

  // The written tensor's memory may be read as the very tensor, not otherwise.
  static bool overlaps_another(const Operands& operands) {
    return std::any_of(operands.tensors.begin(), operands.tensors.end(), [&](const c10::TensorImpl* tensor) {
      return tensor != operands.first && tensor->storage().is_alias_of(operands.first->storage());
    });
  }

  at::Tensor make_result(const c10::TensorImpl& like, bool is_flat) const {
    const auto dtype = c10::typeMetaToScalarType(like.dtype());
    return is_flat && (keeps_strides_ || !like.is_contiguous())
               ? at::detail::empty_strided_cpu(like.sizes(), like.strides(), dtype)
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
  const PointwiseOp::Kind kind_;
  const bool is_function_;
  std::vector<Says> constants_; // by argument
  bool keeps_strides_ = false;  // also those that say nothing
  const bool has_scale_;
  const bool multiplies_; // its second input, before it adds
  const bool subtracts_;
  std::array<kernels::Program, 2 * kNumPatterns> programs_;
};

} // namespace

std::unique_ptr<const SmallCalls> make_small_pointwise(const OpInfo& op) {
  const PointwiseOp* pointwise = is_function(op) ? find_function(op, {}) : find_pointwise_op(op);
  return SmallPointwise::can_be(op, pointwise) ? std::make_unique<SmallPointwise>(op, *pointwise) : nullptr;
}

} // namespace lazyplug
