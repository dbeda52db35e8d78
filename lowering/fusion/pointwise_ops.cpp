#include "lowering/fusion/pointwise_ops.h"

#include <ATen/Version.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "common/config.h"
#include "common/processor.h"
#include "lowering/ir/geometry.h"
#include "lowering/passes/pass.h"

namespace lazyplug {
namespace {

using kernels::Opcode;
using Kind = PointwiseOp::Kind;

constexpr PointwiseOp kOps[] = {
    {"aten::neg", "", Opcode::kNeg, "t"},
    {"aten::abs", "", Opcode::kAbs, "t"},
    {"aten::sqrt", "", Opcode::kSqrt, "t"},
    {"aten::reciprocal", "", Opcode::kReciprocal, "t"},
    {"aten::clone", "", Opcode::kCopy, "t-"},
    {"aten::copy", "", Opcode::kCopy, ".t-"},
    {"aten::_to_copy", "", Opcode::kCopy, "t------"},
    {"aten::add", "Tensor", Opcode::kAdd, "tts"},
    {"aten::add", "Scalar", Opcode::kAdd, "tns"},
    {"aten::sub", "Tensor", Opcode::kSub, "tts"},
    {"aten::sub", "Scalar", Opcode::kSub, "tns"},
    {"aten::rsub", "Scalar", Opcode::kSub, "tns", Kind::kSwapped},
    {"aten::mul", "Tensor", Opcode::kMul, "tt"},
    {"aten::mul", "Scalar", Opcode::kMul, "tn"},
    {"aten::div", "Tensor", Opcode::kDiv, "tt"},
    {"aten::div", "Scalar", Opcode::kDiv, "tn"},
    {"aten::addcmul", "", Opcode::kAddcmul, "ttts"},
    {"aten::addcdiv", "", Opcode::kAddcdiv, "ttts"},
    {"aten::clamp", "", Opcode::kClamp, "tss"},
    {"aten::clamp", "", Opcode::kClampMin, "ts-"},
    {"aten::clamp", "", Opcode::kClampMax, "t-s"},
    {"aten::clamp_min", "", Opcode::kClampMin, "ts"},
    {"aten::clamp_max", "", Opcode::kClampMax, "ts"},
    {"aten::hardtanh", "", Opcode::kClamp, "tss"},
    {"aten::relu", "", Opcode::kRelu, "t"},
    {"aten::leaky_relu", "", Opcode::kLeakyRelu, "ts"},
    {"aten::leaky_relu_backward", "", Opcode::kLeakyReluBackward, "tts-"},
    {"aten::floor", "", Opcode::kFloor, "t"},
    {"aten::ceil", "", Opcode::kCeil, "t"},
    {"aten::round", "", Opcode::kRound, "t"},
    {"aten::trunc", "", Opcode::kTrunc, "t"},
    {"aten::rsqrt", "", Opcode::kRsqrt, "t"},
    {"aten::sigmoid_backward", "", Opcode::kSigmoidBackward, "tt"},
    {"aten::tanh_backward", "", Opcode::kTanhBackward, "tt"},
    {"aten::threshold_backward", "", Opcode::kThresholdBackward, "tts"},
    {"aten::pow", "Tensor_Scalar", Opcode::kSquare, "tp", Kind::kPower},
    {"aten::sum", "dim_IntList", Opcode::kRowSum, "tdk-", Kind::kReduces},
    {"aten::mean", "dim", Opcode::kRowMean, "tdk-", Kind::kReduces},
    {"aten::linalg_vector_norm", "", Opcode::kRowNorm, "tedk-", Kind::kReduces},
    {"aten::sum", "", Opcode::kRowSum, "t-", Kind::kTotals},
    {"aten::mean", "", Opcode::kRowMean, "t-", Kind::kTotals},
    {"aten::where", "self", Opcode::kWhere, "ttt"},
    {"aten::masked_fill", "Scalar", Opcode::kWhere, "ttn", Kind::kMasked},
    {"aten::logical_not", "", Opcode::kNot, "t", Kind::kCompares},
    {"aten::eq", "Tensor", Opcode::kEqual, "tt", Kind::kCompares},
    {"aten::eq", "Scalar", Opcode::kEqual, "tn", Kind::kCompares},
    {"aten::ne", "Tensor", Opcode::kNotEqual, "tt", Kind::kCompares},
    {"aten::ne", "Scalar", Opcode::kNotEqual, "tn", Kind::kCompares},
    {"aten::lt", "Tensor", Opcode::kLess, "tt", Kind::kCompares},
    {"aten::lt", "Scalar", Opcode::kLess, "tn", Kind::kCompares},
    {"aten::le", "Tensor", Opcode::kLessEqual, "tt", Kind::kCompares},
    {"aten::le", "Scalar", Opcode::kLessEqual, "tn", Kind::kCompares},
    {"aten::gt", "Tensor", Opcode::kGreater, "tt", Kind::kCompares},
    {"aten::gt", "Scalar", Opcode::kGreater, "tn", Kind::kCompares},
    {"aten::ge", "Tensor", Opcode::kGreaterEqual, "tt", Kind::kCompares},
    {"aten::ge", "Scalar", Opcode::kGreaterEqual, "tn", Kind::kCompares},
    {"aten::maximum", "", Opcode::kMaximum, "tt", Kind::kIntegers},
    {"aten::minimum", "", Opcode::kMinimum, "tt", Kind::kIntegers},
    {"aten::bitwise_not", "", Opcode::kNot, "t", Kind::kBits},
    {"aten::bitwise_and", "Tensor", Opcode::kMul, "tt", Kind::kBits},
    {"aten::bitwise_and", "Scalar", Opcode::kMul, "tn", Kind::kBits},
    {"aten::bitwise_or", "Tensor", Opcode::kMaximum, "tt", Kind::kBits},
    {"aten::bitwise_or", "Scalar", Opcode::kMaximum, "tn", Kind::kBits},
    {"aten::bitwise_xor", "Tensor", Opcode::kNotEqual, "tt", Kind::kBits},
    {"aten::bitwise_xor", "Scalar", Opcode::kNotEqual, "tn", Kind::kBits},
    {"aten::logical_and", "", Opcode::kMul, "tt", Kind::kLogic},
    {"aten::logical_or", "", Opcode::kMaximum, "tt", Kind::kLogic},
    {"aten::logical_xor", "", Opcode::kNotEqual, "tt", Kind::kLogic},
    {"aten::zeros", "", Opcode::kZero, "-----"},
    {"aten::zeros_like", "", Opcode::kZero, ".-----"},
    {"aten::new_zeros", "", Opcode::kZero, ".-----"},
    {"aten::ones", "", Opcode::kOne, "-----"},
    {"aten::ones_like", "", Opcode::kOne, ".-----"},
    {"aten::new_ones", "", Opcode::kOne, ".-----"},
    {"aten::zero", "", Opcode::kZero, "."},
    {"aten::full", "", Opcode::kNumber, "-s----"},
    {"aten::full_like", "", Opcode::kNumber, ".s-----"},
    {"aten::fill", "Scalar", Opcode::kNumber, ".s"},
    {"aten::scalar_tensor", "", Opcode::kNumber, "s----"},
};

// Measured alone, docs/accuracy.md: these took 1.2 to 1.3 times as long as PyTorch's on AVX2, and 2.4 times as long as
// MKL's on an Intel processor.
constexpr auto kAvx512ButIntel = PointwiseOp::Quicker::kAvx512ButIntel;

// Of rows. Alone, a gradient with its two inputs fills a tile with the longest, and so does a layer norm, which needs
// six slots.
constexpr int64_t kMinRow = 2;
constexpr int64_t kMinNormRow = 64;
constexpr int64_t kMaxRow = 4096;
constexpr int64_t kMaxNormRow = 2048;

constexpr PointwiseOp rows_of(const char* base, Opcode opcode, const char* args, int64_t min_row, int64_t max_row) {
  PointwiseOp row{base, "", opcode, args, Kind::kFunction};
  row.min_row = min_row;
  row.max_row = max_row;
  return row;
}

// Of 16-bit floats, PyTorch's takes as long, or rounds in between. (Square roots have its bits, and are in the other
// table.)
constexpr PointwiseOp of_float32(PointwiseOp row) {
  row.narrow = PointwiseOp::Narrow::kNone;
  return row;
}

// oneDNN has one for the other.
constexpr PointwiseOp but_of_bfloat16(PointwiseOp row) {
  row.narrow = PointwiseOp::Narrow::kHalf;
  return row;
}

constexpr PointwiseOp log_sum_of_rows() {
  PointwiseOp row = of_float32(rows_of("aten::logsumexp", Opcode::kLogSumExp, "tdk", kMinRow, kMaxRow));
  row.kind = Kind::kReduces;
  return row;
}

constexpr PointwiseOp variance_of_rows(const char* base, Opcode opcode) {
  PointwiseOp row = of_float32(rows_of(base, opcode, "tdck", kMinRow, kMaxRow));
  row.overload = "correction";
  row.kind = Kind::kReduces;
  return row;
}

constexpr PointwiseOp kFunctions[] = {
    of_float32({"aten::sqrt", "", Opcode::kSqrtExact, "t", Kind::kFunction}),
    of_float32({"aten::_foreach_sqrt", "", Opcode::kSqrtExact, "l", Kind::kFunction}),
    {"aten::exp", "", Opcode::kExp, "t", Kind::kFunction},
    {"aten::expm1", "", Opcode::kExpm1, "t", Kind::kFunction},
    {"aten::log", "", Opcode::kLog, "t", Kind::kFunction},
    {"aten::log1p", "", Opcode::kLog1p, "t", Kind::kFunction},
    of_float32({"aten::sin", "", Opcode::kSin, "t", Kind::kFunction, nullptr, kAvx512ButIntel}),
    of_float32({"aten::cos", "", Opcode::kCos, "t", Kind::kFunction, nullptr, kAvx512ButIntel}),
    {"aten::tanh", "", Opcode::kTanh, "t", Kind::kFunction},
    {"aten::erf", "", Opcode::kErf, "t", Kind::kFunction},
    {"aten::sigmoid", "", Opcode::kSigmoid, "t", Kind::kFunction},
    {"aten::silu", "", Opcode::kSilu, "t", Kind::kFunction},
    {"aten::silu_backward", "", Opcode::kSiluBackward, "tt", Kind::kFunction},
    but_of_bfloat16({"aten::gelu", "", Opcode::kGelu, "t-", Kind::kFunction, "none"}),
    {"aten::gelu", "", Opcode::kGeluTanh, "t-", Kind::kFunction, "tanh"},
    but_of_bfloat16({"aten::gelu_backward", "", Opcode::kGeluBackward, "tt-", Kind::kFunction, "none"}),
    {"aten::gelu_backward", "", Opcode::kGeluTanhBackward, "tt-", Kind::kFunction, "tanh"},
    {"aten::softplus", "", Opcode::kSoftplus, "tss", Kind::kFunction},
    {"aten::softplus_backward", "", Opcode::kSoftplusBackward, "ttss", Kind::kFunction},
    rows_of("aten::_softmax", Opcode::kSoftmax, "tdf", kMinRow, kMaxRow),
    of_float32(rows_of("aten::_log_softmax", Opcode::kLogSoftmax, "tdf", kMinRow, kMaxRow)),
    of_float32(rows_of("aten::_softmax_backward_data", Opcode::kSoftmaxBackward, "ttdy", kMinRow, kMaxRow)),
    rows_of("aten::_log_softmax_backward_data", Opcode::kLogSoftmaxBackward, "ttdy", kMinRow, kMaxRow),
    log_sum_of_rows(),
    variance_of_rows("aten::var", Opcode::kRowVar),
    variance_of_rows("aten::std", Opcode::kRowStd),
    of_float32(rows_of("aten::native_layer_norm", Opcode::kNormalize, "tzoos", kMinNormRow, kMaxNormRow)),
};

// The rows of each op, in the order of the table.
using Rows = c10::SmallVector<const PointwiseOp*, 3>;
using Index = std::unordered_map<std::string, Rows>;

Index make_index(c10::ArrayRef<PointwiseOp> rows) {
  const bool has_avx512_but_intel = at::get_cpu_capability() == "AVX512" && !is_intel();
  Index index;
  for (const PointwiseOp& row : rows) {
    if (row.quicker == PointwiseOp::Quicker::kAnywhere || has_avx512_but_intel) {
      index[*row.overload ? std::string(row.base) + "." + row.overload : row.base].push_back(&row);
    }
  }
  return index;
}

c10::ArrayRef<const PointwiseOp*> find_rows(const Index& index, const std::string& name) {
  const auto found = index.find(name);
  return found == index.end() ? c10::ArrayRef<const PointwiseOp*>() : found->second;
}

Index index_of_functions() {
  return has_functions() ? make_index(kFunctions) : Index();
}

std::unordered_set<c10::Symbol> symbols_of_functions() {
  std::unordered_set<c10::Symbol> symbols;
  for (const PointwiseOp& row : kFunctions) {
    symbols.insert(c10::Symbol::fromQualString(row.base));
  }
  return symbols;
}

c10::ArrayRef<const PointwiseOp*> rows_of_function(const OpInfo& op) {
  static const auto* index = new auto(index_of_functions());
  // Calls at once ask for each op: most have none, which is quicker to see by symbol.
  static const auto* symbols = new std::unordered_set<c10::Symbol>(symbols_of_functions());
  return symbols->count(op.symbol()) == 0 ? c10::ArrayRef<const PointwiseOp*>() : find_rows(*index, op.name());
}

c10::ArrayRef<const PointwiseOp*> rows_of_op(const OpInfo& op) {
  static const auto* index = new auto(make_index(kOps));
  std::string name = op.base_name();
  if (op.writes() && name.ends_with('_')) {
    name.pop_back();
  }
  return find_rows(*index, op.overload().empty() ? name : name + "." + op.overload());
}

// Whether the numbers are where the row has some.
bool takes_numbers(const PointwiseOp& row, c10::ArrayRef<ArgBinding> args) {
  for (size_t i = 0; i < args.size() && row.args[i] != '\0'; ++i) {
    const bool is_number = args[i].kind == ArgBinding::Kind::kScalar;
    if (row.args[i] == '-' ? is_number : is_number != (std::strchr("neps", row.args[i]) != nullptr)) {
      return false;
    }
  }
  return true;
}

} // namespace

const PointwiseOp* find_pointwise_op(const OpInfo& op) {
  const auto rows = rows_of_op(op);
  return rows.empty() ? nullptr : rows.front();
}

const PointwiseOp* find_pointwise_op(const OpInfo& op, c10::ArrayRef<ArgBinding> args) {
  const auto rows = rows_of_op(op);
  const auto* found =
      std::find_if(rows.begin(), rows.end(), [&](const PointwiseOp* row) { return takes_numbers(*row, args); });
  return found == rows.end() ? nullptr : *found;
}

std::optional<Opcode> power_opcode(const c10::IValue& exponent) {
  if (!exponent.isInt() && !exponent.isDouble()) {
    return std::nullopt;
  }
  const double value = exponent.isInt() ? static_cast<double>(exponent.toInt()) : exponent.toDouble();
  const auto* found =
      std::find_if(kernels::kPowers.begin(), kernels::kPowers.end(), [value](const kernels::Power& power) {
        return power.exponent == value;
      });
  return found == kernels::kPowers.end() ? std::nullopt : std::optional(found->opcode);
}

std::optional<int64_t> correction(const c10::IValue& argument) {
  if (argument.isNone()) {
    return 1;
  }
  const double value = argument.isInt()      ? static_cast<double>(argument.toInt())
                       : argument.isDouble() ? argument.toDouble()
                                             : -1;
  return value == 0 || value == 1 ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

Opcode bitwise_opcode(const PointwiseOp& op) {
  switch (op.opcode) {
    case Opcode::kNot:
      return Opcode::kBitNot;
    case Opcode::kMul:
      return Opcode::kBitAnd;
    case Opcode::kMaximum:
      return Opcode::kBitOr;
    default:
      return Opcode::kBitXor;
  }
}

bool is_expected(const c10::IValue& constant, char arg, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  const auto is_last = [last](int64_t dim) { return dim == -1 || dim == last; };
  switch (arg) {
    case 'd':
      return constant.isIntList() ? constant.toIntList().size() == 1 && is_last(constant.toIntList()[0])
                                  : constant.isInt() && is_last(constant.toInt());
    case 'k':
      return constant.isBool();
    case 'f':
      return constant.isBool() && !constant.toBool();
    case 'y':
      return constant.isInt() && constant.toInt() == static_cast<int64_t>(dtype);
    case 'z':
      return constant.isIntList() && !sizes.empty() && constant.toIntVector() == std::vector<int64_t>{sizes.back()};
    default:
      return arg == '-';
  }
}

bool has_functions() {
  const std::string capability = at::get_cpu_capability();
  return capability == "AVX512" || capability == "AVX2";
}

bool computes_functions() {
  return config().fusion.get() == 3 && is_pass_enabled("fusion");
}

bool is_function(const OpInfo& op) {
  return !rows_of_function(op).empty();
}

const PointwiseOp* find_function(const OpInfo& op, std::string_view variant) {
  const auto rows = rows_of_function(op);
  const auto* found = std::find_if(rows.begin(), rows.end(), [&](const PointwiseOp* row) {
    return !row->variant || row->variant == variant;
  });
  return found == rows.end() ? nullptr : *found;
}

bool takes_dtype(const PointwiseOp& function, c10::ScalarType dtype) {
  using Narrow = PointwiseOp::Narrow;
  return dtype == c10::ScalarType::Float || (dtype == c10::ScalarType::Half && function.narrow != Narrow::kNone) ||
         (dtype == c10::ScalarType::BFloat16 && function.narrow == Narrow::kBoth);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg();
}

bool is_plain_float(const at::Tensor& tensor) {
  return is_plain(tensor) && tensor.scalar_type() == at::kFloat;
}

bool are_rows_without_gaps(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return !sizes.empty() && Geometry::contiguous(c10::ScalarType::Float, sizes).same_memory(sizes, strides);
}

bool takes_rows(const PointwiseOp& function, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (!kernels::is_about_rows(function.opcode)) {
    return true;
  }
  return are_rows_without_gaps(sizes, strides) && sizes.back() >= function.min_row &&
         sizes.back() <= function.max_row && c10::multiply_integers(sizes) != 0;
}

bool takes_part(const PointwiseOp& function, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (kernels::is_about_rows(function.opcode) || function.args[0] == 'l') {
    return false;
  }
  int64_t least = 1; // without overlap
  for (size_t i = sizes.size(); i-- > 0;) {
    // Where a dimension of one element stands in the result, depends on its stride.
    if (sizes[i] <= 1 || strides[i] < least || (i + 1 == sizes.size() && strides[i] != 1)) {
      return false;
    }
    least = strides[i] * sizes[i];
  }
  const auto result = Geometry::contiguous(c10::ScalarType::Float, sizes);
  return !sizes.empty() && !is_torn(sizes, result.strides, {0, c10::DimVector(strides)});
}

bool is_torn(c10::IntArrayRef sizes, c10::IntArrayRef strides, const kernels::PointwiseSpace::Input& input) {
  constexpr int64_t kLongRun = 64;
  constexpr int64_t kFewRuns = 32;
  using Kind = kernels::PointwiseSpace::Kind;
  const auto map = kernels::map_input(sizes, strides, input);
  const bool has_runs = map.kind == Kind::kStrided || map.kind == Kind::kWindow;
  const int64_t long_run = input.window.is_all() ? kLongRun : std::min(kLongRun, input.window.size());
  return has_runs && map.run_length() < long_run && c10::multiply_integers(sizes) > kFewRuns * map.run_length();
}

} // namespace lazyplug
