// Writes single instructions of programs, for run_writer.h: what they read, and their code.
#pragma once

#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <xbyak/xbyak.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug::kernels {
namespace {

using Vector = Xbyak::Xmm; // of any width

// What a register may hold: a slot's vector, one of the program's numbers, or a constant.
using Value = uint16_t;
constexpr Value kFirstNumber = kMaxSlots;
constexpr Value kZeros = kFirstNumber + 256;
constexpr Value kOnes = kZeros + 1;
constexpr Value kHalves = kZeros + 2;
constexpr Value kSigns = kZeros + 3;
constexpr Value kLastBits = kZeros + 4;  // of integers
constexpr Value kBelowHalf = kZeros + 5; // of what bfloat16 lacks of a float32, just less than half
constexpr Value kNans = kZeros + 6;
constexpr Value kThirtySecond = kZeros + 7;
constexpr Value kThirtyTwo = kZeros + 8;
// From kOnes on.
constexpr uint32_t kConstants[] = {0x3F800000, 0x3F000000, 0x80000000, 1, 0x7FFF, 0x7FC00000, 0x3D000000, 0x42000000};
// A slot's element for the row.
constexpr Value kFirstOfRow = kOnes + std::size(kConstants);
// In which columns of the row a vector is.
constexpr Value kColumns = kFirstOfRow + kMaxSlots;

// Of vroundps and vrndscaleps: inexact results are no exception; besides, how to round.
constexpr uint8_t kRoundQuietly = 8;

// Predicates of vcmpps.
enum Compare : uint8_t { kEq = 0, kLt = 1, kLe = 2, kUnordered = 3, kNe = 4, kGe = 13, kGt = 14 };

// The constants that an instruction needs besides its inputs.
std::vector<Value> constants_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNeg:
    case Opcode::kAbs:
      return {kSigns};
    case Opcode::kLerp:
      return {kSigns, kHalves, kOnes};
    case Opcode::kRelu:
    case Opcode::kLeakyRelu:
    case Opcode::kLeakyReluBackward:
    case Opcode::kThresholdBackward:
    case Opcode::kWhere:
    case Opcode::kZero:
      return {kZeros};
    case Opcode::kNot:
      return {kZeros, kOnes};
    case Opcode::kToBFloat16:
      return {kLastBits, kBelowHalf, kNans};
    case Opcode::kReciprocal:
    case Opcode::kRsqrt:
    case Opcode::kInverseSquare:
    case Opcode::kSigmoidBackward:
    case Opcode::kTanhBackward:
    case Opcode::kOne:
      return {kOnes};
    case Opcode::kJoin:
      return {kColumns};
    default:
      return is_comparison(opcode) ? std::vector<Value>{kOnes} : std::vector<Value>();
  }
}

// In the order of operands: inputs, numbers, constants.
std::vector<Value> values_read(const Instruction& instruction) {
  std::vector<Value> values;
  for (size_t i = 0; i < num_inputs(instruction.opcode); ++i) {
    values.push_back(instruction.inputs[i] + (reads_one(instruction.opcode, i) ? kFirstOfRow : 0));
  }
  if (takes_number(instruction.opcode) && !reduces_rows(instruction.opcode)) { // those read it at a row's end
    values.push_back(kFirstNumber + instruction.number);
  }
  if (traits(instruction.opcode).num_numbers > 1) {
    values.push_back(kFirstNumber + instruction.second_number);
  }
  const auto constants = constants_of(instruction.opcode);
  values.insert(values.end(), constants.begin(), constants.end());
  return values;
}

bool reads(const Instruction& instruction, Value value) {
  const auto values = values_read(instruction);
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Which instructions the processor has, and PyTorch uses.
struct Target {
  bool has_avx2 = false;
  bool has_avx512 = false;

  static const Target& here() {
    static const Target target = [] {
      const std::string capability = at::get_cpu_capability();
      const bool has_avx512 = capability == "AVX512";
      return Target{has_avx512 || capability == "AVX2", has_avx512};
    }();
    return target;
  }
  int64_t vector_bytes() const {
    return has_avx512 ? 64 : 32;
  }
  size_t num_registers() const {
    return has_avx512 ? 32 : 16;
  }
  Vector vector(int index) const {
    return has_avx512 ? static_cast<const Vector&>(Xbyak::Zmm(index)) : Xbyak::Ymm(index);
  }
};

// Instructions of vectors in registers. `temporary` makes another register.
class InstructionWriter {
 public:
  InstructionWriter(Xbyak::CodeGenerator& code, std::function<Vector()> temporary)
      : code_(code), temporary_(std::move(temporary)) {}

  // operands: see values_read(). Computes as kernels/tile_loops.inc.cpp does.
  void write(Opcode opcode, const Vector& out, const std::vector<Vector>& operands) const {
    const auto operand = [&](size_t i) { return i < operands.size() ? operands[i] : out; };
    const Vector a = operand(0);
    const Vector b = operand(1);
    const Vector c = operand(2);
    const Vector d = operand(3);
    switch (opcode) {
      case Opcode::kCopy:
      case Opcode::kNumber:
      case Opcode::kZero:
      case Opcode::kOne:
        return code_.vmovaps(out, a);
      case Opcode::kNeg:
        return code_.vxorps(out, a, b);
      case Opcode::kAbs:
        return code_.vandnps(out, b, a);
      case Opcode::kSqrtExact:
        return code_.vsqrtps(out, a);
      case Opcode::kReciprocal:
        return code_.vdivps(out, b, a);
      case Opcode::kAddNumber:
        return code_.vaddps(out, a, b);
      case Opcode::kSubNumber:
        return code_.vsubps(out, a, b);
      case Opcode::kMulNumber:
      case Opcode::kMul:
        return code_.vmulps(out, a, b);
      case Opcode::kDivNumber:
      case Opcode::kDiv:
        return code_.vdivps(out, a, b);
      case Opcode::kAdd:
        code_.vmovaps(out, a);
        return code_.vfmadd231ps(out, b, c);
      case Opcode::kSub:
        code_.vmovaps(out, a);
        return code_.vfnmadd231ps(out, b, c);
      case Opcode::kAddcmul: {
        const Vector product = temporary_();
        code_.vmulps(product, d, b);
        code_.vmovaps(out, a);
        return code_.vfmadd231ps(out, product, c);
      }
      case Opcode::kMulAdd:
        code_.vmovaps(out, c);
        return code_.vfmadd231ps(out, a, b);
      case Opcode::kAddcdiv:
        code_.vmulps(out, d, b);
        code_.vdivps(out, out, c);
        return code_.vaddps(out, a, out);
      case Opcode::kLerp:
        return compute_lerp(out, operands);
      case Opcode::kMaximum:
        code_.vmaxps(out, a, b);
        return unless_nan(out, a);
      case Opcode::kMinimum:
        code_.vminps(out, a, b);
        return unless_nan(out, a);
      case Opcode::kClampMin:
        code_.vmaxps(out, b, a);
        return unless_nan(out, b);
      case Opcode::kClampMax:
        code_.vminps(out, b, a);
        return unless_nan(out, b);
      case Opcode::kClamp:
        code_.vmaxps(out, b, a);
        code_.vminps(out, c, out);
        unless_nan(out, c);
        return unless_nan(out, b);
      case Opcode::kRelu:
        return code_.vmaxps(out, b, a);
      case Opcode::kLeakyRelu:
        return compute_leaky(out, a, a, b, c);
      case Opcode::kLeakyReluBackward:
        return compute_leaky(out, a, b, c, d);
      case Opcode::kFloor:
        return round(out, a, kRoundQuietly | 1);
      case Opcode::kCeil:
        return round(out, a, kRoundQuietly | 2);
      case Opcode::kRound:
        return round(out, a, kRoundQuietly);
      case Opcode::kTrunc:
        return round(out, a, kRoundQuietly | 3);
      case Opcode::kNot:
        return compare(out, operands, kEq);
      case Opcode::kToHalf: {
        const Vector half =
            target_.has_avx512 ? static_cast<const Vector&>(Xbyak::Ymm(out.getIdx())) : Vector(out.getIdx());
        code_.vcvtps2ph(half, a, 0);
        return code_.vcvtph2ps(out, half);
      }
      case Opcode::kToBFloat16:
        return compute_bfloat16(out, operands);
      case Opcode::kRsqrt:
        code_.vsqrtps(out, a);
        return code_.vdivps(out, b, out);
      case Opcode::kSquare:
        return code_.vmulps(out, a, a);
      case Opcode::kCube:
        code_.vmulps(out, a, a);
        return code_.vmulps(out, out, a);
      case Opcode::kInverseSquare:
        code_.vmulps(out, a, a);
        return code_.vdivps(out, b, out);
      case Opcode::kSigmoidBackward:
        code_.vsubps(out, c, b);
        code_.vmulps(out, a, out);
        return code_.vmulps(out, out, b);
      case Opcode::kTanhBackward:
        code_.vmovaps(out, c);
        code_.vfnmadd231ps(out, b, b);
        return code_.vmulps(out, a, out);
      case Opcode::kThresholdBackward:
        return choose(out, {kLe, b, c}, d, a);
      case Opcode::kEqual:
        return compare(out, operands, kEq);
      case Opcode::kNotEqual:
        return compare(out, operands, kNe);
      case Opcode::kLess:
        return compare(out, operands, kLt);
      case Opcode::kLessEqual:
        return compare(out, operands, kLe);
      case Opcode::kGreater:
        return compare(out, operands, kGt);
      case Opcode::kGreaterEqual:
        return compare(out, operands, kGe);
      case Opcode::kWhere:
        return choose(out, {kNe, a, d}, b, c);
      case Opcode::kSpread:
        return code_.vmovaps(out, a);
      case Opcode::kJoin:
        return choose(out, {kLt, d, c}, a, b);
      case Opcode::kNormalize:
        code_.vsubps(out, a, b);
        return code_.vmulps(out, out, c);
      default:
        TORCH_INTERNAL_ASSERT(false, "no machine code for ", traits(opcode).name);
    }
  }

 private:
  struct Condition {
    Compare predicate;
    Vector a;
    Vector b;
  };

  // What follows takes `out` for none of the operands, but where it is read, too.

  void choose(const Vector& out, const Condition& condition, const Vector& yes, const Vector& no) const {
    if (target_.has_avx512) {
      code_.vcmpps(code_.k1, condition.a, condition.b, condition.predicate);
      code_.vblendmps(out | code_.k1, no, yes);
    } else {
      code_.vcmpps(out, condition.a, condition.b, condition.predicate);
      code_.vblendvps(out, no, yes, out);
    }
  }

  void compare(const Vector& out, const std::vector<Vector>& operands, Compare predicate) const {
    if (target_.has_avx512) {
      code_.vcmpps(code_.k1, operands[0], operands[1], predicate);
      code_.vmovaps(out | code_.k1 | code_.T_z, operands[2]);
    } else {
      code_.vcmpps(out, operands[0], operands[1], predicate);
      code_.vandps(out, out, operands[2]);
    }
  }

  // The bound or operand itself, if that is NaN.
  void unless_nan(const Vector& out, const Vector& value) const {
    if (target_.has_avx512) {
      code_.vcmpps(code_.k1, value, value, kUnordered);
      code_.vmovaps(out | code_.k1, value);
    } else {
      const Vector is_nan = temporary_();
      code_.vcmpps(is_nan, value, value, kUnordered);
      code_.vblendvps(out, out, value, is_nan);
    }
  }

  void round(const Vector& out, const Vector& a, uint8_t how) const {
    target_.has_avx512 ? code_.vrndscaleps(out, a, how) : code_.vroundps(out, a, how);
  }

  void compute_bfloat16(const Vector& out, const std::vector<Vector>& operands) const {
    const Vector a = operands[0];
    code_.vpsrld(out, a, 16);
    target_.has_avx512 ? code_.vpandd(out, out, operands[1]) : code_.vpand(out, out, operands[1]);
    code_.vpaddd(out, out, operands[2]);
    code_.vpaddd(out, out, a);
    code_.vpsrld(out, out, 16);
    code_.vpslld(out, out, 16);
    // NaNs that are no bfloat16 have been rounded like numbers.
    if (target_.has_avx512) {
      code_.vcmpps(code_.k1, a, a, kUnordered);
      code_.vpcmpd(code_.k1 | code_.k1, out, a, kNe);
      code_.vmovaps(out | code_.k1, operands[3]);
    } else {
      const Vector is_other_nan = temporary_();
      code_.vpcmpeqd(is_other_nan, out, a);
      code_.vpandn(is_other_nan, is_other_nan, a); // another one's bits, which make a NaN of a NaN
      code_.vcmpps(is_other_nan, is_other_nan, is_other_nan, kUnordered);
      code_.vblendvps(out, out, operands[3], is_other_nan);
    }
  }

  // x where `argument` is positive, else x * slope.
  void compute_leaky(
      const Vector& out,
      const Vector& x,
      const Vector& argument,
      const Vector& slope,
      const Vector& zeros) const {
    const Vector product = temporary_();
    code_.vmulps(product, x, slope);
    choose(out, {kGt, argument, zeros}, x, product);
  }

  // From the nearer end: a + weight * (b - a), or b + (weight - 1) * (b - a).
  void compute_lerp(const Vector& out, const std::vector<Vector>& operands) const {
    const Vector a = operands[0];
    const Vector b = operands[1];
    const Vector weight = operands[2];
    const Vector magnitude = temporary_();
    const Vector rest = temporary_();
    const Vector factor = temporary_();
    code_.vandnps(magnitude, operands[3], weight);
    code_.vsubps(rest, weight, operands[5]);
    const Condition is_small{kLt, magnitude, operands[4]};
    choose(factor, is_small, weight, rest);
    choose(out, is_small, a, b);
    code_.vsubps(rest, b, a); // the difference
    code_.vfmadd231ps(out, factor, rest);
  }

  Xbyak::CodeGenerator& code_;
  const Target& target_ = Target::here();
  const std::function<Vector()> temporary_;
};

} // namespace
} // namespace lazyplug::kernels
