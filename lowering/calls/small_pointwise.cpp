#include "lowering/calls/small_pointwise.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "kernels/tile_loops.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/calls/small_spread.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/fusion/program_numbers.h"
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
      case PointwiseOp::Kind::kMasked:
      case PointwiseOp::Kind::kIntegers:
      case PointwiseOp::Kind::kBits:
      case PointwiseOp::Kind::kLogic:
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
      : args_(op.args), writes_(info.writes()), kind_(op.kind), opcode_(op.opcode) {
    static const auto hardtanh = c10::Symbol::fromQualString("aten::hardtanh"); // PyTorch's begins with empty_like()
    keeps_strides_ = info.symbol() == hardtanh;
    for (size_t i = 0; args_[i] != '\0'; ++i) {
      constants_.push_back(says(info.handle().schema().arguments()[i].name()).value_or(Says::kNothing));
      keeps_strides_ |= args_[i] == '-' && constants_.back() == Says::kFormat;
    }
    for (size_t i = 0; i < programs_.size(); ++i) {
      const c10::ScalarType dtype = kDtypes[i / kNumPatterns];
      const size_t pattern = i % kNumPatterns;
      PointwiseOp row = op;
      row.opcode =
          kind_ == PointwiseOp::Kind::kPower ? kernels::kPowers[pattern % kernels::kPowers.size()].opcode : op.opcode;
      if (dtype != at::kLong || kernels::is_for_integers(op.opcode)) {
        programs_[i] = make_program(row, kind_ == PointwiseOp::Kind::kPower ? 0 : pattern, dtype);
      }
    }
  }

 private:
  // Of which inputs numbers are; or, of a power, which one it is.
  static constexpr size_t kNumPatterns = 8;
  static_assert(kernels::kPowers.size() <= kNumPatterns);
  // That programs compute in.
  static constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kLong};

  // How the tensors lie, and the result.
  enum class Lies : uint8_t {
    kFlat,   // alike, without gaps
    kRows,   // as rows of matrices
    kSpread, // otherwise
  };

  struct Operands {
    const c10::TensorImpl* first = nullptr; // that is read, or written, or like which the result is
    Lies lie = Lies::kFlat;
    size_t dtype = 0; // in which is computed, among kDtypes
    c10::SmallVector<const c10::TensorImpl*, 3> tensors;
    c10::SmallVector<c10::IValue, 2> inputs; // numbers
    c10::SmallVector<c10::IValue, 2> own;    // likewise, the instruction's
    size_t pattern = 0;

    bool are_truths() const {
      return first->dtype() == at::kBool;
    }
  };

  bool is_function() const {
    return kind_ == PointwiseOp::Kind::kFunction;
  }
  // Where the result is of truths whatever the operands are.
  bool makes_truths() const {
    return kind_ == PointwiseOp::Kind::kCompares || kind_ == PointwiseOp::Kind::kLogic;
  }

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
    } else if (op.kind == PointwiseOp::Kind::kMasked) {
      std::rotate(computes.inputs, computes.inputs + 1, computes.inputs + num_inputs);
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

  // The dtype to compute in, among kDtypes. Nothing: the kernels do not go for it. Truths are computed as 0 and 1.
  std::optional<size_t> computing(c10::ScalarType dtype) const {
    using Kind = PointwiseOp::Kind;
    const bool is_logic = kind_ == Kind::kLogic || kind_ == Kind::kBits;
    if (dtype == at::kBool) {
      return is_logic || opcode_ == kernels::Opcode::kNot ? std::optional<size_t>(0) : std::nullopt;
    }
    if (opcode_ == kernels::Opcode::kCopy) { // elements, whatever they are
      const size_t size = c10::elementSize(dtype);
      return size == 4 ? std::optional<size_t>(0) : size == 8 ? std::optional<size_t>(1) : std::nullopt;
    }
    const auto* found = std::find(kDtypes.begin(), kDtypes.end(), dtype);
    const bool may = dtype == at::kLong ? kernels::is_for_integers(opcode_) && kind_ != Kind::kPower
                                        : kernels::is_for_floats(opcode_) && kind_ != Kind::kIntegers;
    return found == kDtypes.end() || !may || is_logic ? std::nullopt : std::optional<size_t>(found - kDtypes.begin());
  }

  // Notes how the tensor lies beside the first one, itself perhaps. False if no kernel goes for it.
  bool fit(const c10::TensorImpl& tensor, Operands& operands) const {
    if (!operands.first) {
      const auto dtype = computing(c10::typeMetaToScalarType(tensor.dtype()));
      if (!dtype || tensor.numel() == 0 || tensor.numel() > kMaxElements) {
        return false;
      }
      operands.first = &tensor;
      operands.dtype = *dtype;
      if (operands.are_truths()) {
        operands.lie = Lies::kSpread;
      } else if (!tensor.is_non_overlapping_and_dense()) {
        operands.lie = has_rows(tensor) ? Lies::kRows : Lies::kSpread;
      } else if (!writes_ && is_ambiguous(tensor)) {
        operands.lie = Lies::kSpread;
      }
      return true;
    }
    if (tensor.dtype() != operands.first->dtype()) {
      return convert(tensor, operands);
    }
    if (tensor.sizes() != operands.first->sizes() || (operands.lie == Lies::kRows && !has_rows(tensor))) {
      operands.lie = Lies::kSpread;
    } else if (operands.lie == Lies::kFlat && tensor.strides() != operands.first->strides()) {
      operands.lie = has_rows(*operands.first) && has_rows(tensor) ? Lies::kRows : Lies::kSpread;
    }
    return true;
  }

  // What is copied may be of another dtype, if nothing is lost, or all processors round it alike.
  bool convert(const c10::TensorImpl& from, Operands& operands) const {
    const auto dtype = c10::typeMetaToScalarType(operands.first->dtype());
    const auto* found = std::find(kDtypes.begin(), kDtypes.end(), dtype);
    const bool is_integer = c10::isIntegralType(c10::typeMetaToScalarType(from.dtype()), /*includeBool=*/true);
    if (opcode_ != kernels::Opcode::kCopy || found == kDtypes.end() || (dtype == at::kLong && !is_integer)) {
      return false;
    }
    operands.dtype = found - kDtypes.begin();
    operands.lie = Lies::kSpread;
    return SmallSpread::can_read(c10::typeMetaToScalarType(from.dtype()));
  }

  // Whether the argument says where others are taken.
  bool is_condition(size_t place) const {
    return opcode_ == kernels::Opcode::kWhere && place == (kind_ == PointwiseOp::Kind::kMasked ? 1 : 0);
  }

  // Python's number beside a tensor.
  bool add_input(size_t place, const c10::IValue& argument, Operands& operands) const {
    const size_t input = operands.tensors.size() + operands.inputs.size();
    const auto* tensor = plain_tensor(argument);
    if (tensor && !tensor->is_wrapped_number()) {
      operands.tensors.push_back(tensor);
      return is_condition(place) ? tensor->dtype() == at::kBool : fit(*tensor, operands);
    }
    c10::IValue number = tensor ? value_of(*tensor) : argument;
    if (!real_number(number) || is_function()) {
      return false;
    }
    operands.inputs.push_back(std::move(number));
    operands.pattern |= size_t{1} << input;
    return true;
  }

  static c10::IValue value_of(const c10::TensorImpl& number) {
    if (!number.is_cpu()) {
      return {};
    }
    if (number.dtype() == at::kDouble) {
      return *static_cast<const double*>(number.data());
    }
    return number.dtype() == at::kLong ? c10::IValue(*static_cast<const int64_t*>(number.data())) : c10::IValue();
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
      operands.own.push_back(argument);
      return true;
    }
    return add_input(place, argument, operands);
  }

  // As the program takes them. Nothing if one is none.
  using Numbers = c10::SmallVector<double, 6>;
  std::optional<Numbers> numbers_of(const Operands& operands) const {
    const c10::ScalarType dtype = kDtypes[operands.dtype];
    const bool are_integers = dtype == at::kLong;
    Numbers numbers;
    for (const auto& number : operands.inputs) {
      // PyTorch's masked_fill() casts its number, and raises if that overflows.
      const auto value = real_number(number);
      const bool may_overflow = opcode_ == kernels::Opcode::kWhere && dtype == at::kFloat;
      if (operands.are_truths() || (are_integers && !number.isInt()) ||
          (may_overflow && value && overflows_float(*value))) {
        return std::nullopt;
      }
      numbers.push_back(are_integers ? kernels::number_of_bits(number.toInt()) : number_for(dtype, number));
    }
    const bool subtracts = opcode_ == kernels::Opcode::kSub;
    const auto is_none = [](const c10::IValue& number) { return number.isNone(); };
    if (!operands.own.empty() && std::all_of(operands.own.begin(), operands.own.end(), is_none)) {
      return std::nullopt; // PyTorch's raises
    }
    for (size_t i = 0; i < operands.own.size(); ++i) {
      const auto& number = operands.own[i];
      const auto value = number.isNone() ? missing_bound(i) : real_number(number);
      if (!value || (are_integers && !number.isInt()) || (dtype == at::kFloat && overflows_float(*value))) {
        return std::nullopt;
      }
      const double rounded = number.isNone() ? *value : number_for(dtype, number);
      numbers.push_back(are_integers ? kernels::number_of_bits(number.toInt()) : negatable(number, rounded, subtracts));
    }
    return numbers;
  }

  // Of clamp(): what changes nothing.
  std::optional<double> missing_bound(size_t number) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return opcode_ == kernels::Opcode::kClamp ? std::optional(number == 0 ? -kInfinity : kInfinity) : std::nullopt;
  }

  // The CPU rounds products with a number by its place: see PointwiseGroup::rounds_by_place().
  bool has_rounded_product(const Operands& operands) const {
    const bool has_scale = opcode_ == kernels::Opcode::kAdd || opcode_ == kernels::Opcode::kSub;
    return kDtypes[operands.dtype] != at::kLong &&
           ((has_scale && real_number(operands.own[0]) != 1) || opcode_ == kernels::Opcode::kTanhBackward);
  }

  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    Operands operands;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!add(i, arguments[i], operands)) {
        return {};
      }
    }
    const auto* first = operands.first;
    const auto numbers = first ? numbers_of(operands) : std::nullopt;
    if (!numbers || (has_rounded_product(operands) && (operands.pattern & 2) != 0)) {
      return {};
    }
    // Memory that is written is known first: to make it may give the tensor another.
    if (writes_ && (arguments[0].unsafeToTensorImpl() != first || overlaps_another(operands))) {
      return {};
    }
    const bool is_spread = operands.lie == Lies::kSpread || opcode_ == kernels::Opcode::kWhere;
    if (is_function() && (operands.lie != Lies::kFlat || first->dtype() != at::kFloat)) {
      return {};
    }
    std::optional<SmallSpread> spread;
    if (is_spread && (writes_ || !keeps_strides_)) {
      spread = SmallSpread::plan(operands.tensors, writes_ ? first : nullptr, kMaxElements);
      const size_t second = (operands.pattern & 1) != 0 ? 0 : 1; // of the tensors
      if (spread && has_rounded_product(operands) && spread->is_broadcast(second)) {
        return {};
      }
    }
    Places memory{};
    if ((is_spread && !spread) || !find_memory(operands, memory_of, memory)) {
      return {};
    }
    at::Tensor result = writes_  ? arguments[0].toTensor()
                        : spread ? at::Tensor(at::detail::empty_cpu(spread->sizes(), dtype_of_result(*first)))
                                 : make_result(*first, operands.lie == Lies::kFlat);
    void*& written = memory[operands.tensors.size()];
    written = writes_ ? written : result.mutable_data_ptr();
    if (spread) {
      compute(operands, *spread, memory, dtype_of_result(*first), numbers->data());
      return result;
    }
    operands.tensors.push_back(result.unsafeGetTensorImpl());
    compute(operands, memory, numbers->data());
    return makes_truths() ? truths_of(result) : result;
  }

  // Of the inputs, and behind them of what is written.
  using Places = std::array<void*, 4>;
  bool find_memory(const Operands& operands, MemoryOf memory_of, Places& memory) const {
    void* const written = writes_ ? memory_of(*operands.first, /*written=*/true) : nullptr;
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
      const bool is_written = writes_ && operands.tensors[i] == operands.first;
      memory[i] = is_written ? written : memory_of(*operands.tensors[i], /*written=*/false);
      if (!memory[i]) {
        return false;
      }
    }
    memory[operands.tensors.size()] = written;
    return !writes_ || written;
  }

  c10::ScalarType dtype_of_result(const c10::TensorImpl& first) const {
    return makes_truths() ? at::kBool : c10::typeMetaToScalarType(first.dtype());
  }

  // Numbers, 0 and 1, become truths.
  static at::Tensor truths_of(const at::Tensor& numbers) {
    at::Tensor truths = at::detail::empty_strided_cpu(numbers.sizes(), numbers.strides(), at::kBool);
    const auto convert = [&](const auto* from) {
      using T = std::remove_cvref_t<decltype(*from)>;
      const auto store = kernels::loops<T>().stores[kernels::memory_dtype(at::kBool)];
      store(numbers.numel(), truths.mutable_data_ptr<bool>(), from);
    };
    switch (numbers.scalar_type()) {
      case at::kFloat:
        convert(numbers.const_data_ptr<float>());
        break;
      case at::kDouble:
        convert(numbers.const_data_ptr<double>());
        break;
      default:
        convert(numbers.const_data_ptr<int64_t>());
    }
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

  const kernels::Program& program_of(const Operands& operands) const {
    return programs_[operands.pattern + operands.dtype * kNumPatterns];
  }

  void compute(
      const Operands& operands,
      const SmallSpread& spread,
      const Places& places,
      c10::ScalarType result,
      const double* numbers) const {
    // What is copied as it is may be anything of that size.
    const auto dtype_of = [&](c10::ScalarType dtype) {
      const bool is_as_it_is = opcode_ == kernels::Opcode::kCopy && dtype == result;
      return is_as_it_is ? kDtypes[operands.dtype] : dtype;
    };
    c10::SmallVector<kernels::Memory, 4> memory;
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
      memory.push_back({places[i], dtype_of(c10::typeMetaToScalarType(operands.tensors[i]->dtype()))});
    }
    memory.push_back({places[operands.tensors.size()], dtype_of(result)});
    spread.run(program_of(operands), memory, numbers);
  }

  // The last tensor is the result.
  void compute(const Operands& operands, const Places& memory, const double* numbers) const {
    const kernels::Program& program = program_of(operands);
    if (operands.lie == Lies::kFlat) {
      return kernels::run(program, kernels::Row{operands.first->numel(), memory.data(), numbers});
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
      rows.push_back({sizes[1], places.data() + row * num_memory, numbers});
    }
    kernels::run(program, rows);
  }

  const char* const args_;
  const bool writes_; // its first tensor
  const PointwiseOp::Kind kind_;
  const kernels::Opcode opcode_; // of a power, of one of them
  std::vector<Says> constants_;  // by argument
  bool keeps_strides_ = false;   // also those that say nothing
  std::array<kernels::Program, kDtypes.size() * kNumPatterns> programs_;
};

} // namespace

std::unique_ptr<const SmallCalls> make_small_pointwise(const OpInfo& op) {
  const PointwiseOp* pointwise = is_function(op) ? find_function(op, {}) : find_pointwise_op(op);
  return SmallPointwise::can_be(op, pointwise) ? std::make_unique<SmallPointwise>(op, *pointwise) : nullptr;
}

} // namespace lazyplug
