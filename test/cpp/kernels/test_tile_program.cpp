#include "kernels/tile_program.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace lazyplug::kernels {
namespace {

// A row on contiguous tensors.
struct Tensors {
  std::vector<void*> memory;
  std::vector<double> numbers;
  int64_t num_elements;

  Tensors(const std::vector<at::Tensor>& tensors, std::vector<double> given)
      : numbers(std::move(given)), num_elements(tensors[0].numel()) {
    for (const at::Tensor& tensor : tensors) {
      memory.push_back(tensor.data_ptr());
    }
  }
  Row row() const {
    return {num_elements, memory.data(), numbers.data()};
  }
};

at::Tensor run_one(Opcode opcode, const std::vector<at::Tensor>& inputs, double number) {
  const auto num_slots = static_cast<uint8_t>(inputs.size() + 1);
  Program program{inputs[0].scalar_type(), num_slots, num_slots, 1, {{opcode, 0, {1, 2, 3}, 0}}};
  const at::Tensor out = at::empty_like(inputs[0]);
  std::vector<at::Tensor> memory{out};
  memory.insert(memory.end(), inputs.begin(), inputs.end());
  run(program, Tensors(memory, {number}).row());
  return out;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto integers = a.scalar_type() == at::kFloat ? at::kInt : at::kLong;
  const at::Tensor is_nan = a.isnan().logical_and(b.isnan());
  return a.view(integers).eq(b.view(integers)).logical_or(is_nan).all().item<bool>();
}

// Ordinary numbers, and every pair and triple of unusual ones.
std::vector<at::Tensor> arguments(int64_t n, at::ScalarType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor unusual = at::tensor({0.0, -0.0, inf, -inf, NAN, 1e-42, -1e-310, 1.0, 3e38, -0.5}, at::kDouble);
  std::vector<at::Tensor> result;
  for (int64_t i = 0; i < 3; ++i) {
    at::Tensor values = at::randn({n}, at::kDouble) * at::randn({n}, at::kDouble).mul(6).exp();
    const at::Tensor places = at::arange(n).div(static_cast<int64_t>(std::pow(10, i)), "floor").remainder(10);
    values = at::where(at::arange(n).lt(n / 2), values, unusual.index_select(0, places));
    result.push_back(values.to(dtype));
  }
  return result;
}

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

class Instructions : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Instructions, AreEagersOpsToTheBit) {
  at::manual_seed(0);
  ASSERT_EQ(cases().size(), kNumOpcodes);
  for (const Case& row : cases()) {
    for (const int64_t n : {0, 1, 7, 16, 31, 67, 512, 2'000, 5'001}) {
      for (const double number : {1.0, 0.3137, -2.5, 0.0, 0.5, 0.9}) {
        auto inputs = arguments(n, GetParam());
        const at::Tensor expected = row.eager(inputs[0], inputs[1], inputs[2], number);
        inputs.resize(row.num_inputs);
        const at::Tensor actual = run_one(row.opcode, inputs, number);
        const bool has_any_zero = row.opcode == Opcode::kLerp && number == 1; // see there
        EXPECT_TRUE(has_any_zero ? at::allclose(actual, expected, 0, 0, true) : same_bits(actual, expected))
            << "opcode " << static_cast<int>(row.opcode) << ", " << n << " elements, number " << number;
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

TEST(TileProgram, OtherTextsAreNone) {
  for (const char* text :
       {"",
        "f16 memory 1 slots 1 numbers 0",
        "f32 memory 1 slots 65 numbers 0",
        "f32 memory 1 slots 1 numbers 0 0 = sqrt 1 ;",
        "f32 memory 1 slots 1 numbers 0 1 = sqrt 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = add_number 0 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = cube 0 ;",
        "f32 memory 1 slots 1 numbers 0 0 = sqrt 0"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

} // namespace
} // namespace lazyplug::kernels
