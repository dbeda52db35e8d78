#include "kernels/tile_program.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

const std::vector<Case>& cases() {
  using T = const at::Tensor&;
  static const std::vector<Case> all{
      {Opcode::kCopy, 1, [](T a, T, T, double) { return a.clone(); }},
      {Opcode::kNeg, 1, [](T a, T, T, double) { return a.neg(); }},
      {Opcode::kAbs, 1, [](T a, T, T, double) { return a.abs(); }},
      {Opcode::kSqrt, 1, [](T a, T, T, double) { return a.sqrt(); }},
      {Opcode::kSqrtExact, 1, [](T a, T, T, double) { return exact_sqrt(a); }},
      {Opcode::kReciprocal, 1, [](T a, T, T, double) { return a.reciprocal(); }},
      {Opcode::kAddNumber, 1, [](T a, T, T, double s) { return a.add(s); }},
      {Opcode::kSubNumber, 1, [](T a, T, T, double s) { return a.sub(s); }},
      {Opcode::kMulNumber, 1, [](T a, T, T, double s) { return a.mul(s); }},
      {Opcode::kDivNumber, 1, [](T a, T, T, double s) { return a.div(s); }},
      {Opcode::kAdd, 2, [](T a, T b, T, double s) { return a.add(b, s); }},
      {Opcode::kSub, 2, [](T a, T b, T, double s) { return a.sub(b, s); }},
      {Opcode::kMul, 2, [](T a, T b, T, double) { return a.mul(b); }},
      {Opcode::kDiv, 2, [](T a, T b, T, double) { return a.div(b); }},
      {Opcode::kAddcmul, 3, [](T a, T b, T c, double s) { return a.addcmul(b, c, s); }},
      {Opcode::kAddcdiv, 3, [](T a, T b, T c, double s) { return a.addcdiv(b, c, s); }},
      {Opcode::kLerp, 2, [](T a, T b, T, double s) { return a.lerp(b, s); }},
      {Opcode::kMaximum, 2, [](T a, T b, T, double) { return a.maximum(b); }},
      {Opcode::kMinimum, 2, [](T a, T b, T, double) { return a.minimum(b); }},
      {Opcode::kClampMin, 1, [](T a, T, T, double s) { return a.clamp_min(s); }},
      {Opcode::kClampMax, 1, [](T a, T, T, double s) { return a.clamp_max(s); }},
      {Opcode::kClamp, 1, [](T a, T, T, double s) { return a.clamp(s, kSecond); }},
      {Opcode::kClamp, 1, [](T a, T, T, double s) { return at::hardtanh(a, s, kSecond); }},
      {Opcode::kRelu, 1, [](T a, T, T, double) { return a.relu(); }},
      {Opcode::kLeakyRelu, 1, [](T a, T, T, double s) { return at::leaky_relu(a, s); }},
      {Opcode::kFloor, 1, [](T a, T, T, double) { return a.floor(); }},
      {Opcode::kCeil, 1, [](T a, T, T, double) { return a.ceil(); }},
      {Opcode::kRound, 1, [](T a, T, T, double) { return a.round(); }},
      {Opcode::kTrunc, 1, [](T a, T, T, double) { return a.trunc(); }},
      {Opcode::kNot, 1, [](T a, T, T, double) { return a.logical_not().to(a.dtype()); }},
      {Opcode::kSquare, 1, [](T a, T, T, double) { return a.pow(2); }},
      {Opcode::kCube, 1, [](T a, T, T, double) { return a.pow(3); }},
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
      {Opcode::kEqual, 2, [](T a, T b, T, double) { return a.eq(b).to(a.dtype()); }},
      {Opcode::kNotEqual, 2, [](T a, T b, T, double) { return a.ne(b).to(a.dtype()); }},
      {Opcode::kLess, 2, [](T a, T b, T, double) { return a.lt(b).to(a.dtype()); }},
      {Opcode::kLessEqual, 2, [](T a, T b, T, double) { return a.le(b).to(a.dtype()); }},
      {Opcode::kGreater, 2, [](T a, T b, T, double) { return a.gt(b).to(a.dtype()); }},
      {Opcode::kGreaterEqual, 2, [](T a, T b, T, double) { return a.ge(b).to(a.dtype()); }},
      {Opcode::kWhere, 3, [](T a, T b, T c, double) { return at::where(a.ne(0), b, c); }},
      {Opcode::kNumber, 1, [](T a, T, T, double s) { return at::full_like(a, s); }},
      {Opcode::kZero, 1, [](T a, T, T, double) { return at::zeros_like(a); }},
      {Opcode::kOne, 1, [](T a, T, T, double) { return at::ones_like(a); }},
  };
  return all;
}

// Whether the sign of the CPU's zero depends on the element's place.
bool is_any_zero(Opcode opcode, double number) {
  return (opcode == Opcode::kLerp && number == 1) || opcode == Opcode::kMaximum || opcode == Opcode::kMinimum;
}

class Instructions : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Instructions, AreEagersOpsToTheBit) {
  at::manual_seed(0);
  for (const Case& row : cases()) {
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

INSTANTIATE_TEST_SUITE_P(Dtypes, Instructions, testing::Values(at::kFloat, at::kDouble));

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
  EXPECT_TRUE(parse("f64 memory 1 slots 1 numbers 0"));
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
        "f32 memory 1 slots 1 numbers 0 0 = sqrt 0"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

} // namespace
} // namespace lazyplug::kernels
