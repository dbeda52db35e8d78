#include "kernels/tile_program.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

at::Tensor exact_sqrt(const at::Tensor& x) {
  const at::Tensor result = x.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  const std::span<double> elements(result.data_ptr<double>(), result.numel());
  std::transform(elements.begin(), elements.end(), elements.begin(), [](double element) { return std::sqrt(element); });
  return result.to(x.scalar_type());
}

// The other number of instructions that have two.
constexpr double kSecond = 0.75;

struct Case {
  Opcode opcode;
  size_t num_inputs;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)> eager;
};

// Of floats and integers alike.
const std::vector<Case>& shared_cases() {
  using T = const at::Tensor&;
  static const std::vector<Case> all{
      {Opcode::kCopy, 1, [](T a, T, T, double) { return a.clone(); }},
      {Opcode::kNeg, 1, [](T a, T, T, double) { return a.neg(); }},
      {Opcode::kAbs, 1, [](T a, T, T, double) { return a.abs(); }},
      {Opcode::kMul, 2, [](T a, T b, T, double) { return a.mul(b); }},
      {Opcode::kMaximum, 2, [](T a, T b, T, double) { return a.maximum(b); }},
      {Opcode::kMinimum, 2, [](T a, T b, T, double) { return a.minimum(b); }},
      {Opcode::kRelu, 1, [](T a, T, T, double) { return a.relu(); }},
      {Opcode::kNot, 1, [](T a, T, T, double) { return a.logical_not().to(a.dtype()); }},
      {Opcode::kSquare, 1, [](T a, T, T, double) { return a.pow(2); }},
      {Opcode::kCube, 1, [](T a, T, T, double) { return a.pow(3); }},
      {Opcode::kEqual, 2, [](T a, T b, T, double) { return a.eq(b).to(a.dtype()); }},
      {Opcode::kNotEqual, 2, [](T a, T b, T, double) { return a.ne(b).to(a.dtype()); }},
      {Opcode::kLess, 2, [](T a, T b, T, double) { return a.lt(b).to(a.dtype()); }},
      {Opcode::kLessEqual, 2, [](T a, T b, T, double) { return a.le(b).to(a.dtype()); }},
      {Opcode::kGreater, 2, [](T a, T b, T, double) { return a.gt(b).to(a.dtype()); }},
      {Opcode::kGreaterEqual, 2, [](T a, T b, T, double) { return a.ge(b).to(a.dtype()); }},
      {Opcode::kWhere, 3, [](T a, T b, T c, double) { return at::where(a.ne(0), b, c); }},
      {Opcode::kZero, 1, [](T a, T, T, double) { return at::zeros_like(a); }},
      {Opcode::kOne, 1, [](T a, T, T, double) { return at::ones_like(a); }},
  };
  return all;
}

std::vector<Case> with_shared(std::vector<Case> cases) {
  cases.insert(cases.end(), shared_cases().begin(), shared_cases().end());
  return cases;
}

const std::vector<Case>& cases() {
  using T = const at::Tensor&;
  static const std::vector<Case> all = with_shared({
      {Opcode::kSqrt, 1, [](T a, T, T, double) { return a.sqrt(); }},
      {Opcode::kSqrtExact, 1, [](T a, T, T, double) { return exact_sqrt(a); }},
      {Opcode::kReciprocal, 1, [](T a, T, T, double) { return a.reciprocal(); }},
      {Opcode::kAddNumber, 1, [](T a, T, T, double s) { return a.add(s); }},
      {Opcode::kSubNumber, 1, [](T a, T, T, double s) { return a.sub(s); }},
      {Opcode::kMulNumber, 1, [](T a, T, T, double s) { return a.mul(s); }},
      {Opcode::kDivNumber, 1, [](T a, T, T, double s) { return a.div(s); }},
      {Opcode::kAdd, 2, [](T a, T b, T, double s) { return a.add(b, s); }},
      {Opcode::kSub, 2, [](T a, T b, T, double s) { return a.sub(b, s); }},
      {Opcode::kDiv, 2, [](T a, T b, T, double) { return a.div(b); }},
      {Opcode::kAddcmul, 3, [](T a, T b, T c, double s) { return a.addcmul(b, c, s); }},
      {Opcode::kAddcdiv, 3, [](T a, T b, T c, double s) { return a.addcdiv(b, c, s); }},
      {Opcode::kLerp, 2, [](T a, T b, T, double s) { return a.lerp(b, s); }},
      {Opcode::kClampMin, 1, [](T a, T, T, double s) { return a.clamp_min(s); }},
      {Opcode::kClampMax, 1, [](T a, T, T, double s) { return a.clamp_max(s); }},
      {Opcode::kClamp, 1, [](T a, T, T, double s) { return a.clamp(s, kSecond); }},
      {Opcode::kClamp, 1, [](T a, T, T, double s) { return at::hardtanh(a, s, kSecond); }},
      {Opcode::kLeakyRelu, 1, [](T a, T, T, double s) { return at::leaky_relu(a, s); }},
      {Opcode::kFloor, 1, [](T a, T, T, double) { return a.floor(); }},
      {Opcode::kCeil, 1, [](T a, T, T, double) { return a.ceil(); }},
      {Opcode::kRound, 1, [](T a, T, T, double) { return a.round(); }},
      {Opcode::kTrunc, 1, [](T a, T, T, double) { return a.trunc(); }},
      {Opcode::kInverseSquare, 1, [](T a, T, T, double) { return a.pow(-2); }},
      {Opcode::kSqrt, 1, [](T a, T, T, double) { return a.pow(0.5); }},
      {Opcode::kRsqrt, 1, [](T a, T, T, double) { return a.pow(-0.5); }},
      {Opcode::kRsqrt, 1, [](T a, T, T, double) { return a.rsqrt(); }},
      {Opcode::kReciprocal, 1, [](T a, T, T, double) { return a.pow(-1); }},
      {Opcode::kSigmoidBackward, 2, [](T a, T b, T, double) { return at::sigmoid_backward(a, b); }},
      {Opcode::kTanhBackward, 2, [](T a, T b, T, double) { return at::tanh_backward(a, b); }},
      {Opcode::kThresholdBackward, 2, [](T a, T b, T, double s) { return at::threshold_backward(a, b, s); }},
      {Opcode::kLeakyReluBackward,
       2,
       [](T a, T b, T, double s) { return at::leaky_relu_backward(a, b, s, /*self_is_result=*/false); }},
      {Opcode::kNumber, 1, [](T a, T, T, double s) { return at::full_like(a, s); }},
  });
  return all;
}

// Of float32 alone.
const std::vector<Case>& narrowing_cases() {
  using T = const at::Tensor&;
  static const std::vector<Case> all{
      {Opcode::kToHalf, 1, [](T a, T, T, double) { return a.to(at::kHalf).to(at::kFloat); }},
      {Opcode::kToBFloat16, 1, [](T a, T, T, double) { return a.to(at::kBFloat16).to(at::kFloat); }},
  };
  return all;
}

constexpr int64_t kSecondInteger = 9;

const std::vector<Case>& cases_of_integers() {
  using T = const at::Tensor&;
  const auto whole = [](double s) { return static_cast<int64_t>(s); };
  static const std::vector<Case> all = with_shared({
      {Opcode::kAddNumber, 1, [=](T a, T, T, double s) { return a.add(whole(s)); }},
      {Opcode::kSubNumber, 1, [=](T a, T, T, double s) { return a.sub(whole(s)); }},
      {Opcode::kMulNumber, 1, [=](T a, T, T, double s) { return a.mul(whole(s)); }},
      {Opcode::kAdd, 2, [=](T a, T b, T, double s) { return a.add(b, whole(s)); }},
      {Opcode::kSub, 2, [=](T a, T b, T, double s) { return a.sub(b, whole(s)); }},
      {Opcode::kClampMin, 1, [=](T a, T, T, double s) { return a.clamp_min(whole(s)); }},
      {Opcode::kClampMax, 1, [=](T a, T, T, double s) { return a.clamp_max(whole(s)); }},
      {Opcode::kClamp, 1, [=](T a, T, T, double s) { return a.clamp(whole(s), kSecondInteger); }},
      {Opcode::kBitNot, 1, [](T a, T, T, double) { return a.bitwise_not(); }},
      {Opcode::kBitAnd, 2, [](T a, T b, T, double) { return a.bitwise_and(b); }},
      {Opcode::kBitOr, 2, [](T a, T b, T, double) { return a.bitwise_or(b); }},
      {Opcode::kBitXor, 2, [](T a, T b, T, double) { return a.bitwise_xor(b); }},
      {Opcode::kNumber, 1, [=](T a, T, T, double s) { return at::full_like(a, whole(s)); }},
  });
  return all;
}

// Whether the sign of the CPU's zero depends on the element's place.
bool is_any_zero(Opcode opcode, double number) {
  return (opcode == Opcode::kLerp && number == 1) || opcode == Opcode::kMaximum || opcode == Opcode::kMinimum;
}

class Instructions : public testing::TestWithParam<at::ScalarType> {};
class InstructionsOfIntegers : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Instructions, AreEagersOpsToTheBit) {
  at::manual_seed(0);
  std::vector<Case> rows = cases();
  if (GetParam() == at::kFloat) {
    rows.insert(rows.end(), narrowing_cases().begin(), narrowing_cases().end());
  }
  for (const Case& row : rows) {
    for (const int64_t n : {0, 1, 7, 16, 31, 67, 512, 2'000, 5'001}) {
      for (const double number : {1.0, 0.3137, -2.5, 0.0, 0.5, 0.9, double{NAN}}) {
        auto inputs = arguments(n, GetParam());
        const at::Tensor expected = row.eager(inputs[0], inputs[1], inputs[2], number);
        inputs.resize(row.num_inputs);
        const at::Tensor actual = run_one(row.opcode, inputs, {number, kSecond});
        const bool has_any_zero = is_any_zero(row.opcode, number);
        EXPECT_TRUE(has_any_zero ? at::allclose(actual, expected, 0, 0, true) : same_bits(actual, expected))
            << traits(row.opcode).name << ", " << n << " elements, number " << number;
      }
    }
  }
}

TEST_P(InstructionsOfIntegers, AreEagersOps) {
  at::manual_seed(0);
  const auto draw = [&](int64_t n) {
    const at::Tensor any = at::randint(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), {n});
    return at::where(at::arange(n).remainder(3).eq(0), any, any.remainder(5)).to(GetParam());
  };
  for (const Case& row : cases_of_integers()) {
    for (const int64_t n : {0, 1, 7, 16, 31, 67, 512, 5'001}) {
      for (const int64_t number : {1, 0, 3, 100}) {
        std::vector<at::Tensor> inputs{draw(n), draw(n), draw(n)};
        const at::Tensor expected = row.eager(inputs[0], inputs[1], inputs[2], static_cast<double>(number));
        inputs.resize(row.num_inputs);
        const at::Tensor actual = run_one(row.opcode, inputs, {number_of_bits(number), number_of_bits(kSecondInteger)});
        EXPECT_TRUE(at::equal(actual, expected))
            << traits(row.opcode).name << ", " << n << " elements, number " << number;
      }
    }
  }
}

TEST(TileProgram, EachInstructionIsOfFloatsOrIntegers) {
  for (const OpcodeTraits& row : kOpcodes) {
    const bool has_case = std::any_of(cases_of_integers().begin(), cases_of_integers().end(), [&](const Case& each) {
      return each.opcode == row.opcode;
    });
    EXPECT_EQ(is_for_integers(row.opcode), has_case) << row.name;
    EXPECT_TRUE(is_for_integers(row.opcode) || is_for_floats(row.opcode)) << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Instructions, testing::Values(at::kFloat, at::kDouble));
INSTANTIATE_TEST_SUITE_P(
    Dtypes,
    InstructionsOfIntegers,
    testing::Values(at::kByte, at::kChar, at::kShort, at::kInt, at::kLong));

// r = sqrt(a); r = r + 1, without memory; a = a + 2 * r; b = b / a
const Program kProgram{
    at::kFloat,
    2,
    3,
    2,
    {{Opcode::kSqrt, 2, {0}},
     {Opcode::kAddNumber, 2, {2}, 0},
     {Opcode::kAdd, 0, {0, 2}, 1},
     {Opcode::kDiv, 1, {1, 0}}}};

TEST(TileProgram, KeepsWithinATileWhatHasNoMemory) {
  std::vector<at::Tensor> a;
  std::vector<at::Tensor> b;
  std::vector<at::Tensor> expected_a;
  std::vector<at::Tensor> expected_b;
  std::vector<Tensors> tensors;
  for (const int64_t n : {3, 0, 1'000, 1, 200'000, 512}) {
    a.push_back(at::rand({n}));
    b.push_back(at::rand({n}));
    expected_a.push_back(a.back() + 2 * (a.back().sqrt() + 1));
    expected_b.push_back(b.back() / expected_a.back());
    tensors.push_back(Tensors({a.back(), b.back()}, {1, 2}));
  }
  std::vector<Row> rows;
  for (const Tensors& row : tensors) {
    rows.push_back(row.row());
  }
  at::set_num_threads(2);
  run(kProgram, rows);
  at::set_num_threads(1);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], expected_a[i])) << i;
    EXPECT_TRUE(at::equal(b[i], expected_b[i])) << i;
  }
}

TEST(TileProgram, MayWorkOnMemoryOfNarrowFloats) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Opcode narrows = dtype == at::kHalf ? Opcode::kToHalf : Opcode::kToBFloat16;
    const Program program{
        at::kFloat,
        3,
        3,
        0,
        {{Opcode::kMul, 0, {0, 1}}, {narrows, 0, {0}}, {Opcode::kDiv, 2, {0, 1}}, {narrows, 2, {2}}}};
    const at::Tensor a = at::rand({5'003}).to(dtype);
    const at::Tensor b = at::rand({5'003}).add(0.5).to(dtype);
    const at::Tensor fresh = at::empty({5'003}, dtype);
    const at::Tensor product = a.mul(b);
    const at::Tensor b_before = b.clone();
    run(program, std::vector<Row>{Tensors({a, b, fresh}, {}).row()}, dtype);
    EXPECT_TRUE(at::equal(a, product)) << dtype;
    EXPECT_TRUE(at::equal(b, b_before)) << dtype;
    EXPECT_TRUE(at::equal(fresh, product.div(b))) << dtype;
  }
  EXPECT_THROW(run(kProgram, {}, at::kDouble), c10::Error);
}

TEST(TileProgram, NumbersAreThoseOfTheRow) {
  const at::Tensor x = at::zeros({2});
  const Program program{at::kFloat, 1, 1, 2, {{Opcode::kAddNumber, 0, {0}, 0}, {Opcode::kMulNumber, 0, {0}, 1}}};
  std::vector<Tensors> tensors{Tensors({x.narrow(0, 0, 1)}, {1, 2}), Tensors({x.narrow(0, 1, 1)}, {3, 4})};
  run(program, std::vector<Row>{tensors[0].row(), tensors[1].row()});
  EXPECT_TRUE(at::equal(x, at::tensor({2.F, 12.F})));
}

TEST(TileProgram, IsText) {
  const std::string text =
      "f32 memory 2 slots 3 numbers 2 2 = sqrt 0 ; 2 = add_number 2 0 ; 0 = add 0 2 1 ; 1 = div 1 0 ;";
  EXPECT_EQ(to_string(kProgram), text);
  const auto parsed = parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(to_string(*parsed), text);
  for (const char* dtype : {"f64", "u8", "i8", "i16", "i32", "i64"}) {
    const std::string of_dtype = std::string(dtype) + " memory 1 slots 1 numbers 0 0 = neg 0 ;";
    ASSERT_TRUE(parse(of_dtype)) << dtype;
    EXPECT_EQ(to_string(*parse(of_dtype)), of_dtype);
  }
}

TEST(TileProgram, TextSaysWhatIsForRows) {
  const std::string text = "f32 memory 2 slots 3 numbers 0 2 = row_mean 0 ; 2 = row:neg 2 ; 1 = spread 2 ;";
  const auto program = parse(text);
  ASSERT_TRUE(program);
  EXPECT_EQ(to_string(*program), text);
  EXPECT_TRUE(program->has_rows());
  EXPECT_TRUE(program->instructions[1].is_for_row);
  EXPECT_TRUE(program->instructions[0].makes_one());
  EXPECT_FALSE(program->instructions[2].makes_one());
  EXPECT_FALSE(kProgram.has_rows());
}

TEST(TileProgram, OtherTextsAreNone) {
  for (const char* text :
       {"",
        "f16 memory 1 slots 1 numbers 0",
        "f32 memory 1 slots 65 numbers 0",
        "f32 memory 1 slots 1 numbers 0 0 = sqrt 1 ;",
        "f32 memory 1 slots 1 numbers 0 1 = sqrt 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = add_number 0 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = root 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = bit_not 0 ;",
        "i32 memory 1 slots 1 numbers 0 0 = sqrt 0 ;",
        "f64 memory 1 slots 1 numbers 0 0 = to_half 0 ;",
        "f64 memory 2 slots 2 numbers 0 1 = row_norm 0 ;",
        "f64 memory 2 slots 2 numbers 1 1 = row_std 0 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = sqrt 0"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

} // namespace
} // namespace lazyplug::kernels
