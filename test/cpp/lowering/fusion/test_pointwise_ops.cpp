#include "lowering/fusion/pointwise_ops.h"

#include <ATen/Version.h>

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

TEST(PointwiseOps, AreKnownByTheirOverload) {
  EXPECT_EQ(find_pointwise_op(find_op("aten::add.Tensor"))->opcode, Opcode::kAdd);
  EXPECT_EQ(find_pointwise_op(find_op("aten::gt.Scalar"))->kind, PointwiseOp::Kind::kCompares);
  EXPECT_EQ(find_pointwise_op(find_op("aten::add.out")), nullptr);
  EXPECT_EQ(find_pointwise_op(find_op("aten::sigmoid_")), nullptr);
  EXPECT_EQ(find_pointwise_op(find_op("aten::lerp.Scalar")), nullptr) << "the CPU's zeros depend on the place";
  EXPECT_EQ(find_pointwise_op(find_op("aten::mm")), nullptr);
}

TEST(PointwiseOps, TheVariantThatWritesIsComputedTheSameWay) {
  EXPECT_EQ(find_pointwise_op(find_op("aten::mul_.Tensor")), find_pointwise_op(find_op("aten::mul.Tensor")));
  EXPECT_EQ(find_pointwise_op(find_op("aten::zero_"))->opcode, Opcode::kZero);
}

// As the instruction takes them.
TEST(PointwiseOps, SayWhatEachArgumentIs) {
  for (const char* name :
       {"aten::neg",
        "aten::clone",
        "aten::copy_",
        "aten::_to_copy",
        "aten::add.Tensor",
        "aten::add.Scalar",
        "aten::rsub.Scalar",
        "aten::addcmul",
        "aten::clamp",
        "aten::hardtanh",
        "aten::leaky_relu",
        "aten::leaky_relu_backward",
        "aten::masked_fill_.Scalar",
        "aten::logical_not",
        "aten::bitwise_or.Tensor",
        "aten::where.self",
        "aten::threshold_backward",
        "aten::tanh_backward",
        "aten::le.Scalar",
        "aten::zeros",
        "aten::ones_like",
        "aten::new_zeros",
        "aten::full",
        "aten::full_like",
        "aten::fill_.Scalar",
        "aten::scalar_tensor"}) {
    const OpInfo& op = find_op(name);
    const PointwiseOp* row = find_pointwise_op(op);
    ASSERT_NE(row, nullptr) << name;
    const std::string args = row->args;
    ASSERT_EQ(args.size(), op.num_args()) << name;
    size_t num_inputs = 0;
    size_t num_numbers = 0;
    for (size_t i = 0; i < args.size(); ++i) {
      const bool is_tensor = args[i] == 't' || args[i] == '.';
      const bool is_number = args[i] == 'n' || args[i] == 's';
      EXPECT_EQ(is_tensor, op.args()[i].kind == ArgKind::kTensor) << name << ", " << i;
      EXPECT_TRUE(!is_number || op.args()[i].kind == ArgKind::kScalar) << name << ", " << i;
      num_inputs += args[i] == 't' || args[i] == 'n' ? 1 : 0;
      num_numbers += args[i] == 's' ? 1 : 0;
    }
    EXPECT_EQ(num_inputs, kernels::num_inputs(row->opcode)) << name;
    EXPECT_EQ(num_numbers, kernels::traits(row->opcode).num_numbers) << name;
  }
}

TEST(PointwiseOps, NumbersThatAreMissingMakeAnotherInstruction) {
  using Kind = ArgBinding::Kind;
  const auto opcode = [](const char* name, std::initializer_list<Kind> kinds) {
    std::vector<ArgBinding> args;
    for (const Kind kind : kinds) {
      args.emplace_back().kind = kind;
    }
    const PointwiseOp* row = find_pointwise_op(find_op(name), args);
    return row ? std::optional(row->opcode) : std::nullopt;
  };
  EXPECT_EQ(opcode("aten::clamp", {Kind::kOperand, Kind::kScalar, Kind::kScalar}), Opcode::kClamp);
  EXPECT_EQ(opcode("aten::clamp_", {Kind::kOperand, Kind::kScalar, Kind::kConstant}), Opcode::kClampMin);
  EXPECT_EQ(opcode("aten::clamp", {Kind::kOperand, Kind::kConstant, Kind::kScalar}), Opcode::kClampMax);
  EXPECT_EQ(opcode("aten::clamp", {Kind::kOperand, Kind::kConstant, Kind::kConstant}), std::nullopt);
  EXPECT_EQ(opcode("aten::add.Tensor", {Kind::kOperand, Kind::kOperand, Kind::kScalar}), Opcode::kAdd);
}

TEST(PointwiseOps, TheFirstRowOfAnOpIsTheFirstInTheTable) {
  EXPECT_EQ(find_pointwise_op(find_op("aten::clamp"))->opcode, Opcode::kClamp);
}

TEST(PointwiseOps, FunctionsAreApart) {
  EXPECT_EQ(find_pointwise_op(find_op("aten::exp")), nullptr);
  EXPECT_TRUE(is_function(find_op("aten::exp")));
  EXPECT_FALSE(is_function(find_op("aten::exp_")));
  EXPECT_FALSE(is_function(find_op("aten::neg")));
  EXPECT_EQ(find_function(find_op("aten::exp"), {})->opcode, Opcode::kExp);
  EXPECT_EQ(find_function(find_op("aten::gelu"), "none")->opcode, Opcode::kGelu);
  EXPECT_EQ(find_function(find_op("aten::gelu"), "tanh")->opcode, Opcode::kGeluTanh);
  EXPECT_EQ(find_function(find_op("aten::gelu"), "other"), nullptr);
  EXPECT_EQ(find_function(find_op("aten::neg"), {}), nullptr);
}

TEST(PointwiseOps, FunctionsOfRowsWantThemContiguousAndSoLong) {
  const PointwiseOp& softmax = *find_function(find_op("aten::_softmax"), {});
  EXPECT_TRUE(takes_rows(softmax, {3, 2}, {2, 1}));
  EXPECT_TRUE(takes_rows(softmax, {4096}, {1}));
  EXPECT_FALSE(takes_rows(softmax, {4097}, {1}));
  EXPECT_FALSE(takes_rows(softmax, {3, 1}, {1, 1}));
  EXPECT_FALSE(takes_rows(softmax, {3, 8}, {1, 3}));
  EXPECT_FALSE(takes_rows(softmax, {0, 8}, {8, 1}));
  EXPECT_FALSE(takes_rows(softmax, {}, {}));
  const PointwiseOp& norm = *find_function(find_op("aten::native_layer_norm"), {});
  EXPECT_TRUE(norm.is_layer_norm());
  EXPECT_TRUE(takes_rows(norm, {3, 64}, {64, 1}));
  EXPECT_FALSE(takes_rows(norm, {3, 63}, {63, 1}));
  EXPECT_FALSE(takes_rows(norm, {3, 2049}, {2049, 1}));
  EXPECT_TRUE(takes_rows(*find_function(find_op("aten::exp"), {}), {3, 8}, {1, 3}));
}

TEST(PointwiseOps, FunctionsSayOfWhichFloatsTheyAre) {
  const auto dtypes = [](const char* name, std::string_view variant = {}) {
    std::vector<c10::ScalarType> taken;
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt}) {
      if (takes_dtype(*find_function(find_op(name), variant), dtype)) {
        taken.push_back(dtype);
      }
    }
    return taken;
  };
  using Dtypes = std::vector<c10::ScalarType>;
  EXPECT_EQ(dtypes("aten::exp"), (Dtypes{at::kFloat, at::kHalf, at::kBFloat16}));
  EXPECT_EQ(dtypes("aten::sqrt"), (Dtypes{at::kFloat}));
  EXPECT_EQ(dtypes("aten::native_layer_norm"), (Dtypes{at::kFloat}));
  EXPECT_EQ(dtypes("aten::gelu", "none"), (Dtypes{at::kFloat, at::kHalf}));
}

TEST(PointwiseOps, ConstantsSayWhatTheirRowsExpect) {
  EXPECT_TRUE(
      is_expected(-1, 'd', at::kFloat, {3, 8}) && is_expected(1, 'd', at::kFloat, {3, 8}) &&
      !is_expected(0, 'd', at::kFloat, {3, 8}));
  EXPECT_TRUE(
      is_expected(false, 'f', at::kFloat, {}) && !is_expected(true, 'f', at::kFloat, {}) &&
      !is_expected(c10::IValue(), 'f', at::kFloat, {}));
  EXPECT_TRUE(is_expected(at::kFloat, 'y', at::kFloat, {}) && is_expected(at::kHalf, 'y', at::kHalf, {}));
  EXPECT_TRUE(!is_expected(at::kHalf, 'y', at::kFloat, {}) && !is_expected(at::kFloat, 'y', at::kHalf, {}));
  const c10::IValue eight = c10::List<int64_t>({8});
  EXPECT_TRUE(
      is_expected(eight, 'z', at::kFloat, {3, 8}) && !is_expected(eight, 'z', at::kFloat, {8, 3}) &&
      !is_expected(eight, 'z', at::kFloat, {}));
}

// A call's identity must tell apart the exponents that have instructions, and no others need to be.
TEST(PointwiseOps, ExponentsWithAnInstructionDecideAboutACall) {
  const ArgInfo& exponent = find_op("aten::pow.Tensor_Scalar").args()[1];
  ASSERT_FALSE(exponent.decisive.empty());
  for (int quarters = -16; quarters <= 16; ++quarters) {
    const c10::IValue number = quarters * 0.25;
    EXPECT_EQ(power_opcode(number).has_value(), exponent.decision(number) != 0) << number;
  }
  for (const double value : exponent.decisive) {
    EXPECT_TRUE(power_opcode(value).has_value()) << value;
  }
}

} // namespace
} // namespace lazyplug
