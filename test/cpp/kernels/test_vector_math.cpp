#include <gtest/gtest.h>

#include <cstring>

#include "test/cpp/kernels/functions.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

at::Tensor run_function(Opcode opcode, const at::Tensor& x) {
  std::vector<at::Tensor> inputs{x};
  if (traits(opcode).num_inputs == 2) {
    inputs = {at::ones_like(x), x};
  }
  return run_one(opcode, inputs, {1, kSoftplusThreshold});
}

// Where functions change from one piece to the next.
std::vector<double> edges() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double>
      result{0, kInfinity, NAN, 0x1.fffffep127, 0x1p-126, 0x1p-25, 1, 9.125, 4, 12.5, kSoftplusThreshold};
  for (int i = 0; i < 300; ++i) {
    result.push_back((i + 0.5) * M_LN2);                   // exp
    result.push_back((i % 2 == 0 ? 1 : 1e5) * i * M_PI_4); // sin, cos
  }
  for (int i = -149; i < 128; ++i) {
    result.push_back(std::ldexp(1, i));
    result.push_back(std::ldexp(0.69921875, i)); // log
    result.push_back(std::ldexp(0.69921875, i) - 1);
  }
  for (int quarter = 0; quarter < 16; ++quarter) { // tanh, erf
    const double place = std::ldexp(1 + quarter % 4 / 4.0, quarter / 4 - 1) - 0.5;
    result.push_back(place / 0.8125);
    result.push_back(place / 1.8125);
  }
  return result;
}

// The 50 numbers on either side of each edge, and of its negative, and every 4099th of all.
at::Tensor arguments() {
  std::vector<int32_t> bits;
  for (const double edge : edges()) {
    const auto number = static_cast<float>(edge);
    int32_t middle = 0;
    std::memcpy(&middle, &number, sizeof(number));
    for (int32_t i = std::max(middle - 50, 0); i <= middle + 50; ++i) {
      bits.push_back(i);
      bits.push_back(static_cast<int32_t>(static_cast<uint32_t>(i) ^ 0x80000000U));
    }
  }
  for (int64_t i = -(int64_t{1} << 31); i < int64_t{1} << 31; i += 4099) {
    bits.push_back(static_cast<int32_t>(i));
  }
  return at::tensor(bits, at::kInt).view(at::kFloat);
}

// Gradients are NaN where eager's formula multiplies zero by infinity; GELU is so for -inf.
bool is_right(const Function& function, float x, float result, float eager, double exact) {
  if (std::isnan(result)) {
    return std::isnan(eager);
  }
  // oneDNN's GELU makes a zero of either sign of -0, depending on the processor.
  if (result == 0 && eager == 0 && std::signbit(result) != std::signbit(exact)) {
    return std::signbit(result) == std::signbit(eager);
  }
  return ulps(result, exact) <= function.max_ulp ||
         std::abs(result - exact) <= function.max_error * std::max(1.0F, std::abs(x));
}

TEST(VectorMath, IsAsAccurateAsDocumented) {
  const at::Tensor x = arguments();
  for (const Function& function : functions()) {
    const at::Tensor result = run_function(function.opcode, x);
    const at::Tensor eager = function.eager(x);
    const at::Tensor exact = function.exact(x.to(at::kDouble));
    int num_wrong = 0;
    for (int64_t i = 0; i < x.numel() && num_wrong < 5; ++i) {
      const float number = x.const_data_ptr<float>()[i];
      const float ours = result.const_data_ptr<float>()[i];
      const float eagers = eager.const_data_ptr<float>()[i];
      const double right = exact.const_data_ptr<double>()[i];
      if (!is_right(function, number, ours, eagers, right)) {
        ++num_wrong;
        ADD_FAILURE() << traits(function.opcode).name << " of " << number << " is " << ours << ", eager's " << eagers
                      << ", exactly " << right << ", ulp " << ulps(ours, right);
      }
    }
  }
}

// erf, by which eager computes it, has lost most of them there.
TEST(VectorMath, GeluKeepsItsDigitsFarBelowZero) {
  if (at::get_cpu_capability() == "AVX512") {
    GTEST_SKIP() << "is computed by erf";
  }
  const at::Tensor x = at::linspace(-12.4, -1, 5000, at::kFloat);
  const at::Tensor d = x.to(at::kDouble);
  const at::Tensor exact = at::special_erfcx(d.mul(-M_SQRT1_2)).mul(d.mul(d).mul(-0.5).exp()).mul(d.mul(0.5));
  const at::Tensor error = run_function(Opcode::kGelu, x).to(at::kDouble).div(exact).sub(1).abs();
  // The square in the exponent is rounded.
  EXPECT_TRUE(error.le(d.mul(d).mul(0x1p-24).add(4e-7)).all().item<bool>()) << error.max();
  const at::Tensor beyond = run_function(Opcode::kGelu, at::tensor({-12.5F, -1e30F}));
  EXPECT_TRUE(beyond.eq(0).all().item<bool>()) << beyond;
}

class EveryOpcode : public testing::TestWithParam<std::tuple<OpcodeTraits, at::ScalarType>> {
 protected:
  std::vector<at::Tensor> inputs(int64_t n) const {
    at::manual_seed(0);
    std::vector<at::Tensor> result;
    for (int i = 0; i < std::max<int>(row().num_inputs, 1); ++i) {
      result.push_back(at::randn({n}, std::get<1>(GetParam())).mul(3));
    }
    return result;
  }
  const OpcodeTraits& row() const {
    return std::get<0>(GetParam());
  }
};

TEST_P(EveryOpcode, ComputesTheSameWhereverAnElementStands) {
  const auto all = inputs(200);
  const at::Tensor expected = run_one(row().opcode, all, {0.7, 2});
  for (int64_t n = 1; n <= 70; ++n) {
    std::vector<at::Tensor> part;
    for (const at::Tensor& input : all) {
      part.push_back(input.narrow(0, n, n));
    }
    EXPECT_TRUE(same_bits(run_one(row().opcode, part, {0.7, 2}), expected.narrow(0, n, n))) << n;
  }
}

TEST_P(EveryOpcode, WritesOverAnyInput) {
  for (uint8_t written = 0; written < row().num_inputs; ++written) {
    auto memory = inputs(533);
    const at::Tensor expected = run_one(row().opcode, memory, {0.7, 2});
    const Program program{
        memory[0].scalar_type(),
        row().num_inputs,
        row().num_inputs,
        2,
        {{row().opcode, written, {0, 1, 2}, 0, 1}}};
    run(program, Tensors(memory, {0.7, 2}).row());
    EXPECT_TRUE(same_bits(memory[written], expected)) << int{written};
  }
}

TEST_P(EveryOpcode, HasTwoNumbersAtMostInText) {
  const Program program{std::get<1>(GetParam()), 3, 4, 2, {{row().opcode, 3, {0, 1, 2}, 0, 1}}};
  const auto parsed = parse(to_string(program));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(to_string(*parsed), to_string(program));
  EXPECT_EQ(parsed->instructions[0].second_number, row().num_numbers > 1 ? 1 : 0);
}

const auto name_of = [](const testing::TestParamInfo<EveryOpcode::ParamType>& info) {
  return std::get<0>(info.param).name + std::string(std::get<1>(info.param) == at::kFloat ? "_f32" : "_f64");
};
INSTANTIATE_TEST_SUITE_P(
    Opcodes,
    EveryOpcode,
    testing::Combine(testing::ValuesIn(elementwise_opcodes(at::kDouble)), testing::Values(at::kFloat, at::kDouble)),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Narrowing,
    EveryOpcode,
    testing::Combine(
        testing::Values(traits(Opcode::kToHalf), traits(Opcode::kToBFloat16)),
        testing::Values(at::kFloat)),
    name_of);

// These are MKL's and Sleef's own, and what the CPU's vectors make of them; what is left over of its last vector it
// computes by the C library.
TEST(VectorMath, IsTheCpusInFloat64) {
  at::manual_seed(0);
  const at::Tensor x = at::cat({at::randn({4064}, at::kDouble).mul(4), at::randn({32}, at::kDouble).mul(300)});
  for (const Function& function : functions()) {
    EXPECT_TRUE(at::allclose(run_function(function.opcode, x), function.eager(x), 4e-15, 1e-15, true))
        << traits(function.opcode).name;
  }
  for (const Opcode opcode :
       {Opcode::kExp,
        Opcode::kLog,
        Opcode::kSin,
        Opcode::kCos,
        Opcode::kTanh,
        Opcode::kErf,
        Opcode::kExpm1,
        Opcode::kLog1p,
        Opcode::kSigmoid,
        Opcode::kSilu,
        Opcode::kSoftplus}) {
    const auto function =
        std::find_if(functions().begin(), functions().end(), [&](const Function& row) { return row.opcode == opcode; });
    EXPECT_TRUE(same_bits(run_function(opcode, x), function->eager(x))) << traits(opcode).name;
  }
}

} // namespace
} // namespace lazyplug::kernels
