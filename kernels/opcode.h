#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lazyplug::kernels {

// What an instruction makes of its inputs a, b and c and its numbers s and t, element by element. Arithmetic rounds as
// the CPU's vectorised kernels of PyTorch round: where those use a fused multiply-add, these do. For float32, functions
// that cannot be exact are our own, as exact as docs/accuracy.md says; for float64 they are the CPU's. Integers wrap
// around.
enum class Opcode : uint8_t {
  kCopy,       // a
  kNeg,        // -a
  kAbs,        // |a|
  kSqrt,       // of a, as the CPU's library rounds
  kSqrtExact,  // of a, correctly rounded
  kReciprocal, // 1 / a
  kAddNumber,  // a + s
  kMulNumber,  // a * s
  kDivNumber,  // a / s
  kSubNumber,  // a - s
  kAdd,        // a + s * b
  kSub,        // a - s * b
  kMul,        // a * b
  kDiv,        // a / b
  kAddcmul,    // a + s * b * c
  kMulAdd,     // a * b + c, rounded once where the target can
  kAddcdiv,    // a + s * b / c
  // The sign of the CPU's zero depends on the element's place in these three, if s is 1 and b is -0, and if a and b are
  // two zeros. Here it does not.
  kLerp,      // a + s * (b - a)
  kMaximum,   // of a and b, NaN if one is; of two zeros, b
  kMinimum,   // likewise
  kClampMin,  // a, but no less than s; NaN if one is
  kClampMax,  // a, but no more than s; likewise
  kClamp,     // a, but no less than s, then no more than t; NaN if one is
  kRelu,      // a, but no less than 0
  kLeakyRelu, // a, but a * s unless it is positive
  kFloor,
  kCeil,
  kRound, // to the nearest integer, to even ones from half-way
  kTrunc,
  kNot, // 1 if a is 0, else 0
  // Of integers: bit by bit.
  kBitNot,
  kBitAnd,
  kBitOr,
  kBitXor,
  // Of float32: the nearest number that the narrower dtype has, the even one from half-way.
  kToHalf,
  kToBFloat16,
  kRsqrt, // 1 / sqrt(a), the processor's; pow(a, -0.5) is that, pow(a, 0.5) is kSqrt, pow(a, -1) kReciprocal
  kSquare,
  kCube,
  kInverseSquare, // 1 / (a * a)
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSin,
  kCos,
  kTanh,
  kErf,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kSoftplus, // log1p(exp(a * s)) / s, but a if a * s is above t
  // Gradients: a is that of the result.
  kSigmoidBackward,   // b is the result
  kTanhBackward,      // likewise
  kThresholdBackward, // a, but 0 where b is at most s; b is the argument here and below
  kLeakyReluBackward, // a, but a * s unless b is positive
  kSiluBackward,
  kGeluBackward,
  kGeluTanhBackward,
  kSoftplusBackward, // s and t as above
  // Comparisons make 1 where they hold, else 0.
  kEqual,        // a == b
  kNotEqual,     // a != b
  kLess,         // a < b
  kLessEqual,    // a <= b
  kGreater,      // a > b
  kGreaterEqual, // a >= b
  kWhere,        // a != 0 ? b : c
  kNumber,       // s
  kZero,
  kOne,
  // Of a row: from all of its elements to one, in the order in which the CPU sums up, and back.
  kRowSum,  // of a
  kRowMean, // the same, divided by their number
  // Of float32 alone:
  kRowNorm, // the root of the sum of squares of a
  kRowVar,  // the sum of squares of distances from the mean of a, divided by their number less s
  kRowStd,  // the root of the same
  kSpread,  // the first of a, for each element
  kJoin,    // a before column s, b from there on
  // Functions of a row, to as many elements. They round the same for each target.
  kSoftmax,
  kLogSoftmax,
  kSoftmaxBackward,    // a is the gradient of the result, b the result
  kLogSoftmaxBackward, // likewise
  kLogSumExp,          // log(sum(exp(a))), to one element
  // Of a row a, and what has been made of it: one element each.
  kRowCenter, // the mean of a, as exact as it can be, to one element
  kRowRstd,   // 1 / sqrt(the mean of (a - b)^2, b its mean, + s), to one element
  kNormalize, // (a - b) * c
};

struct OpcodeTraits {
  Opcode opcode;
  const char* name;
  uint8_t num_inputs;
  uint8_t num_numbers;
};

inline constexpr std::array kOpcodes = std::to_array<OpcodeTraits>({
    {Opcode::kCopy, "copy", 1, 0},
    {Opcode::kNeg, "neg", 1, 0},
    {Opcode::kAbs, "abs", 1, 0},
    {Opcode::kSqrt, "sqrt", 1, 0},
    {Opcode::kSqrtExact, "sqrt_exact", 1, 0},
    {Opcode::kReciprocal, "reciprocal", 1, 0},
    {Opcode::kAddNumber, "add_number", 1, 1},
    {Opcode::kMulNumber, "mul_number", 1, 1},
    {Opcode::kDivNumber, "div_number", 1, 1},
    {Opcode::kSubNumber, "sub_number", 1, 1},
    {Opcode::kAdd, "add", 2, 1},
    {Opcode::kSub, "sub", 2, 1},
    {Opcode::kMul, "mul", 2, 0},
    {Opcode::kDiv, "div", 2, 0},
    {Opcode::kAddcmul, "addcmul", 3, 1},
    {Opcode::kMulAdd, "mul_add", 3, 0},
    {Opcode::kAddcdiv, "addcdiv", 3, 1},
    {Opcode::kLerp, "lerp", 2, 1},
    {Opcode::kMaximum, "maximum", 2, 0},
    {Opcode::kMinimum, "minimum", 2, 0},
    {Opcode::kClampMin, "clamp_min", 1, 1},
    {Opcode::kClampMax, "clamp_max", 1, 1},
    {Opcode::kClamp, "clamp", 1, 2},
    {Opcode::kRelu, "relu", 1, 0},
    {Opcode::kLeakyRelu, "leaky_relu", 1, 1},
    {Opcode::kFloor, "floor", 1, 0},
    {Opcode::kCeil, "ceil", 1, 0},
    {Opcode::kRound, "round", 1, 0},
    {Opcode::kTrunc, "trunc", 1, 0},
    {Opcode::kNot, "not", 1, 0},
    {Opcode::kBitNot, "bit_not", 1, 0},
    {Opcode::kBitAnd, "bit_and", 2, 0},
    {Opcode::kBitOr, "bit_or", 2, 0},
    {Opcode::kBitXor, "bit_xor", 2, 0},
    {Opcode::kToHalf, "to_half", 1, 0},
    {Opcode::kToBFloat16, "to_bfloat16", 1, 0},
    {Opcode::kRsqrt, "rsqrt", 1, 0},
    {Opcode::kSquare, "square", 1, 0},
    {Opcode::kCube, "cube", 1, 0},
    {Opcode::kInverseSquare, "inverse_square", 1, 0},
    {Opcode::kExp, "exp", 1, 0},
    {Opcode::kExpm1, "expm1", 1, 0},
    {Opcode::kLog, "log", 1, 0},
    {Opcode::kLog1p, "log1p", 1, 0},
    {Opcode::kSin, "sin", 1, 0},
    {Opcode::kCos, "cos", 1, 0},
    {Opcode::kTanh, "tanh", 1, 0},
    {Opcode::kErf, "erf", 1, 0},
    {Opcode::kSigmoid, "sigmoid", 1, 0},
    {Opcode::kSilu, "silu", 1, 0},
    {Opcode::kGelu, "gelu", 1, 0},
    {Opcode::kGeluTanh, "gelu_tanh", 1, 0},
    {Opcode::kSoftplus, "softplus", 1, 2},
    {Opcode::kSigmoidBackward, "sigmoid_backward", 2, 0},
    {Opcode::kTanhBackward, "tanh_backward", 2, 0},
    {Opcode::kThresholdBackward, "threshold_backward", 2, 1},
    {Opcode::kLeakyReluBackward, "leaky_relu_backward", 2, 1},
    {Opcode::kSiluBackward, "silu_backward", 2, 0},
    {Opcode::kGeluBackward, "gelu_backward", 2, 0},
    {Opcode::kGeluTanhBackward, "gelu_tanh_backward", 2, 0},
    {Opcode::kSoftplusBackward, "softplus_backward", 2, 2},
    {Opcode::kEqual, "eq", 2, 0},
    {Opcode::kNotEqual, "ne", 2, 0},
    {Opcode::kLess, "lt", 2, 0},
    {Opcode::kLessEqual, "le", 2, 0},
    {Opcode::kGreater, "gt", 2, 0},
    {Opcode::kGreaterEqual, "ge", 2, 0},
    {Opcode::kWhere, "where", 3, 0},
    {Opcode::kNumber, "number", 0, 1},
    {Opcode::kZero, "zero", 0, 0},
    {Opcode::kOne, "one", 0, 0},
    {Opcode::kRowSum, "row_sum", 1, 0},
    {Opcode::kRowMean, "row_mean", 1, 0},
    {Opcode::kRowNorm, "row_norm", 1, 0},
    {Opcode::kRowVar, "row_var", 1, 1},
    {Opcode::kRowStd, "row_std", 1, 1},
    {Opcode::kSpread, "spread", 1, 0},
    {Opcode::kJoin, "join", 2, 1},
    {Opcode::kSoftmax, "softmax", 1, 0},
    {Opcode::kLogSoftmax, "log_softmax", 1, 0},
    {Opcode::kSoftmaxBackward, "softmax_backward", 2, 0},
    {Opcode::kLogSoftmaxBackward, "log_softmax_backward", 2, 0},
    {Opcode::kLogSumExp, "logsumexp", 1, 0},
    {Opcode::kRowCenter, "row_center", 1, 0},
    {Opcode::kRowRstd, "row_rstd", 2, 1},
    {Opcode::kNormalize, "normalize", 3, 0},
});
constexpr size_t kNumOpcodes = kOpcodes.size();

consteval bool are_rows_of_opcodes_in_order() {
  for (size_t i = 0; i < kNumOpcodes; ++i) {
    if (static_cast<size_t>(kOpcodes[i].opcode) != i) {
      return false;
    }
  }
  return true;
}
static_assert(are_rows_of_opcodes_in_order());

constexpr const OpcodeTraits& traits(Opcode opcode) {
  return kOpcodes[static_cast<size_t>(opcode)];
}

constexpr bool is_comparison(Opcode opcode) {
  return opcode >= Opcode::kEqual && opcode <= Opcode::kGreaterEqual;
}

// Whether it is computed in the same way of floats and of integers.
constexpr bool is_for_any(Opcode opcode) {
  return opcode == Opcode::kCopy || opcode == Opcode::kNot || is_comparison(opcode) || opcode == Opcode::kWhere ||
         opcode == Opcode::kNumber || opcode == Opcode::kZero || opcode == Opcode::kOne;
}

// Whether programs of integers may have it.
constexpr bool is_for_integers(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNeg:
    case Opcode::kAbs:
    case Opcode::kAddNumber:
    case Opcode::kMulNumber:
    case Opcode::kSubNumber:
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kClampMin:
    case Opcode::kClampMax:
    case Opcode::kClamp:
    case Opcode::kRelu:
    case Opcode::kBitNot:
    case Opcode::kBitAnd:
    case Opcode::kBitOr:
    case Opcode::kBitXor:
    case Opcode::kSquare:
    case Opcode::kCube:
      return true;
    default:
      return is_for_any(opcode);
  }
}
// Whether programs of floats may.
constexpr bool is_for_floats(Opcode opcode) {
  return opcode < Opcode::kBitNot || opcode > Opcode::kBitXor;
}
// Whether it rounds to a narrower dtype.
constexpr bool is_narrowing(Opcode opcode) {
  return opcode == Opcode::kToHalf || opcode == Opcode::kToBFloat16;
}

// Whether it is applied to one row at a time.
constexpr bool is_about_rows(Opcode opcode) {
  return opcode >= Opcode::kRowSum;
}
// Whether it reads but one element of this input for each row.
constexpr bool reads_one(Opcode opcode, size_t input) {
  const bool may_follow = opcode == Opcode::kRowRstd || opcode == Opcode::kNormalize;
  return opcode == Opcode::kSpread || (may_follow && input > 0);
}
constexpr bool reduces_rows(Opcode opcode) {
  return (opcode >= Opcode::kRowSum && opcode <= Opcode::kRowStd) || opcode == Opcode::kLogSumExp ||
         opcode == Opcode::kRowCenter || opcode == Opcode::kRowRstd;
}
// Whether it computes float32 alone.
constexpr bool is_for_float32(Opcode opcode) {
  return is_narrowing(opcode) || (opcode >= Opcode::kRowNorm && opcode <= Opcode::kRowStd);
}
// Whether its number is part of what it is, rather than one of the program's arguments.
constexpr bool takes_literal(Opcode opcode) {
  return opcode == Opcode::kJoin || opcode == Opcode::kRowVar || opcode == Opcode::kRowStd;
}

// Powers that are one instruction.
struct Power {
  double exponent;
  Opcode opcode;
};
inline constexpr std::array kPowers = std::to_array<Power>({
    {1, Opcode::kCopy},
    {2, Opcode::kSquare},
    {3, Opcode::kCube},
    {-2, Opcode::kInverseSquare},
    {-1, Opcode::kReciprocal},
    {-0.5, Opcode::kRsqrt},
});

} // namespace lazyplug::kernels
