#include "lowering/calls/function_kernel.h"

#include "common/config.h"
#include "common/processor.h"
#include "lowering/computation.h"
#include "test/cpp/lowering/programs.h"

#include <ATen/Version.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

class FunctionKernel : public testing::Test {
 protected:
  void SetUp() override {
    config().fusion.set(3);
  }
  void TearDown() override {
    config().fusion.set(before);
    config().disabled_passes.set("");
  }
  // What the op makes of the arguments here; undefined if it is left to others.
  static at::Tensor run(const char* name, c10::Stack stack, const char* overload = "") {
    const size_t size = stack.size();
    if (!run_function(make_op(name, overload), stack)) {
      EXPECT_EQ(stack.size(), size);
      return {};
    }
    EXPECT_EQ(stack.size(), 1);
    return stack[0].toTensor();
  }

  const int64_t before = config().fusion.get();
  const at::Tensor x = at::linspace(-6, 6, 1001, at::kFloat);
  const at::Tensor g = at::linspace(2, -1, 1001, at::kFloat);
};

// Compared in double, relative to what a gradient is multiplied by: docs/accuracy.md has ulps.
void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_TRUE(actual.defined());
  EXPECT_TRUE(actual.to(at::kDouble).allclose(expected, 1e-6, 1e-6)) << (actual - expected).abs().max();
}

TEST_F(FunctionKernel, ComputesEachFunction) {
  const at::Tensor positive = x.abs().add(0.01F);
  const at::Tensor p = positive.to(at::kDouble);
  const at::Tensor d = x.to(at::kDouble);
  const at::Tensor e = g.to(at::kDouble);
  expect_close(run("aten::exp", {x}), d.exp());
  expect_close(run("aten::expm1", {x}), d.expm1());
  expect_close(run("aten::log", {positive}), p.log());
  expect_close(run("aten::log1p", {positive}), p.log1p());
  expect_close(run("aten::tanh", {x}), d.tanh());
  expect_close(run("aten::erf", {x}), d.erf());
  expect_close(run("aten::sigmoid", {x}), d.sigmoid());
  expect_close(run("aten::silu", {x}), at::silu(d));
  expect_close(run("aten::silu_backward", {g, x}), at::silu_backward(e, d));
  expect_close(run("aten::gelu", {x, "none"}), at::gelu(d, "none"));
  expect_close(run("aten::gelu_backward", {g, x, "none"}), at::gelu_backward(e, d, "none"));
  expect_close(run("aten::gelu", {x, "tanh"}), at::gelu(d, "tanh"));
  expect_close(run("aten::gelu_backward", {g, x, "tanh"}), at::gelu_backward(e, d, "tanh"));
  expect_close(run("aten::softplus", {x, 2.0, 3}), at::softplus(d, 2, 3));
  expect_close(run("aten::softplus_backward", {g, x, 2.0, 3}), at::softplus_backward(e, d, 2, 3));
}

TEST_F(FunctionKernel, SquareRootsAreRoundedCorrectly) {
  const at::Tensor exact = g.abs().to(at::kDouble).sqrt().to(at::kFloat);
  EXPECT_TRUE(run("aten::sqrt", {g.abs()}).equal(exact));
  c10::Stack lists{c10::List<at::Tensor>({g.abs(), at::empty({0}), g.abs()[0]})};
  ASSERT_TRUE(run_function(make_op("aten::_foreach_sqrt"), lists));
  const auto results = lists[0].toTensorVector();
  ASSERT_EQ(results.size(), 3);
  EXPECT_TRUE(results[0].equal(exact));
  EXPECT_EQ(results[1].numel(), 0);
  EXPECT_TRUE(results[2].equal(exact[0]));
  c10::Stack mixed{c10::List<at::Tensor>({g.abs(), g.to(at::kDouble)})};
  EXPECT_FALSE(run_function(make_op("aten::_foreach_sqrt"), mixed)) << "all or none";
}

TEST_F(FunctionKernel, ComputesOthersWithAvx512Only) {
  if (at::get_cpu_capability() == "AVX512" && !is_intel()) {
    const at::Tensor d = x.to(at::kDouble);
    expect_close(run("aten::sin", {x}), d.sin());
    expect_close(run("aten::cos", {x}), d.cos());
  } else {
    EXPECT_FALSE(run("aten::sin", {x}).defined());
    EXPECT_FALSE(run("aten::cos", {x}).defined());
  }
}

TEST_F(FunctionKernel, ComputesFunctionsOfRows) {
  const at::Tensor rows = at::randn({7, 133});
  const at::Tensor gradient = at::randn({7, 133});
  const at::Tensor d = rows.to(at::kDouble);
  const at::Tensor e = gradient.to(at::kDouble);
  const at::Tensor y = rows.softmax(-1);
  const at::Tensor z = rows.log_softmax(-1);
  const auto as_double = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  expect_close(run("aten::_softmax", {rows, 1, false}), d.softmax(-1));
  expect_close(run("aten::_log_softmax", {rows, -1, false}), d.log_softmax(-1));
  expect_close(
      run("aten::_softmax_backward_data", {gradient, y, -1, at::kFloat}),
      at::_softmax_backward_data(e, as_double(y), -1, at::kDouble));
  expect_close(
      run("aten::_log_softmax_backward_data", {gradient, z, -1, at::kFloat}),
      at::_log_softmax_backward_data(e, as_double(z), -1, at::kDouble));
}

// Of 16 bits: as rounded as what they are compared with.
TEST_F(FunctionKernel, ComputesNarrowFloats) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor rows = at::randn({7, 133}).to(dtype);
    const at::Tensor other = at::randn({7, 133}).to(dtype);
    const auto expect_rounded = [&](const at::Tensor& actual, const at::Tensor& exact) {
      ASSERT_TRUE(actual.defined());
      EXPECT_EQ(actual.scalar_type(), dtype);
      const double ulp = dtype == at::kHalf ? 0x1p-10 : 0x1p-7;
      EXPECT_TRUE(actual.to(at::kDouble).allclose(exact, 0.51 * ulp, 1e-6)) << (actual - exact).abs().max();
    };
    const at::Tensor d = rows.to(at::kDouble);
    const at::Tensor e = other.to(at::kDouble);
    expect_rounded(run("aten::tanh", {rows}), d.tanh());
    expect_rounded(run("aten::tanh", {rows.t()}), d.t().tanh());
    expect_rounded(run("aten::silu_backward", {other, rows}), at::silu_backward(e, d));
    expect_rounded(run("aten::softplus", {rows, 2.0, 3}), at::softplus(d, 2, 3));
    expect_rounded(run("aten::_softmax", {rows, 1, false}), d.softmax(-1));
    const at::Tensor z = rows.log_softmax(-1);
    expect_rounded(
        run("aten::_log_softmax_backward_data", {other, z, -1, dtype}),
        at::_log_softmax_backward_data(e, z.to(at::kDouble), -1, at::kDouble));
    EXPECT_FALSE(run("aten::_log_softmax_backward_data", {other, z, -1, at::kFloat}).defined());
    EXPECT_FALSE(run("aten::silu_backward", {other, d.to(at::kFloat)}).defined()) << "of two dtypes";
    EXPECT_FALSE(run("aten::sqrt", {rows}).defined());
  }
}

TEST_F(FunctionKernel, ReducesRows) {
  const at::Tensor rows = at::randn({2, 7, 33});
  for (const bool keeps : {false, true}) {
    const at::Tensor result = run("aten::logsumexp", {rows, c10::List<int64_t>({-1}), keeps});
    expect_close(result, at::logsumexp(rows.to(at::kDouble), {2}, keeps));
    EXPECT_EQ(result.sizes(), at::logsumexp(rows, {2}, keeps).sizes());
  }
  for (const c10::IValue& correction : {c10::IValue(), c10::IValue(0), c10::IValue(1.0)}) {
    const c10::List<int64_t> last({-1});
    const auto number = correction.isNone() ? std::nullopt : std::optional(correction.toScalar());
    const at::Tensor result = run("aten::var", {rows, last, correction, false}, "correction");
    expect_close(result, at::var(rows.to(at::kDouble), {2}, number));
    const at::Tensor root = run("aten::std", {rows, last, correction, true}, "correction");
    expect_close(root, at::std(rows.to(at::kDouble), {2}, number, true));
  }
  EXPECT_FALSE(run("aten::var", {rows, c10::List<int64_t>({-1}), 2, false}, "correction").defined());
  EXPECT_FALSE(run("aten::std", {rows, c10::List<int64_t>({0}), 1, false}, "correction").defined());
  EXPECT_FALSE(run("aten::std", {rows, c10::IValue(), 1, false}, "correction").defined()) << "of all";
  EXPECT_FALSE(run("aten::logsumexp", {rows, c10::List<int64_t>({1}), false}).defined());
  EXPECT_FALSE(run("aten::logsumexp", {rows, c10::List<int64_t>({1, 2}), false}).defined());
  EXPECT_FALSE(run("aten::logsumexp", {at::randn({3}), c10::List<int64_t>(), false}).defined());
}

TEST_F(FunctionKernel, LayerNormHasThreeResults) {
  const at::Tensor rows = at::randn({2, 7, 133});
  const at::Tensor w = at::randn({133});
  const at::Tensor b = at::randn({133});
  const c10::IValue none;
  for (const auto& parameters : {std::vector<c10::IValue>{none, none}, {w, none}, {w, b}}) {
    c10::Stack stack{rows, c10::List<int64_t>({133}), parameters[0], parameters[1], 1e-5};
    ASSERT_TRUE(run_function(make_op("aten::native_layer_norm"), stack));
    ASSERT_EQ(stack.size(), 3);
    const auto as_double = [](const c10::IValue& parameter) {
      return parameter.isNone() ? std::optional<at::Tensor>() : parameter.toTensor().to(at::kDouble);
    };
    const auto exact =
        at::native_layer_norm(rows.to(at::kDouble), {133}, as_double(parameters[0]), as_double(parameters[1]), 1e-5);
    expect_close(stack[0].toTensor(), std::get<0>(exact));
    expect_close(stack[1].toTensor(), std::get<1>(exact));
    expect_close(stack[2].toTensor(), std::get<2>(exact));
    EXPECT_EQ(stack[1].toTensor().sizes(), (std::vector<int64_t>{2, 7, 1}));
  }
  const c10::List<int64_t> last({133});
  const auto is_computed = [](c10::Stack stack) { return run_function(make_op("aten::native_layer_norm"), stack); };
  EXPECT_FALSE(is_computed({rows, last, none, b, 1e-5})) << "a bias alone";
  EXPECT_FALSE(is_computed({rows, c10::List<int64_t>({7, 133}), none, none, 1e-5}));
  EXPECT_FALSE(is_computed({rows.transpose(0, 1), last, none, none, 1e-5}));
  EXPECT_FALSE(is_computed({rows, last, at::randn({133, 2}).select(1, 0), none, 1e-5})) << "with gaps";
  EXPECT_FALSE(is_computed({rows.to(at::kDouble), last, none, none, 1e-5}));
}

TEST_F(FunctionKernel, OtherFunctionsOfRowsAreLeftAlone) {
  const at::Tensor rows = at::randn({7, 133});
  EXPECT_FALSE(run("aten::_softmax", {rows, 0, false}).defined()) << "not the last dimension";
  EXPECT_FALSE(run("aten::_softmax", {rows.t(), 1, false}).defined()) << "not contiguous";
  EXPECT_FALSE(run("aten::_softmax", {rows.to(at::kDouble), 1, false}).defined());
  EXPECT_FALSE(run("aten::_softmax", {rows.to(at::kHalf), 1, true}).defined());
  EXPECT_FALSE(run("aten::_softmax", {rows.slice(0, 0, 0), 1, false}).defined()) << "nothing";
  EXPECT_FALSE(run("aten::_softmax", {rows[0][0], -1, false}).defined()) << "no row";
  EXPECT_FALSE(run("aten::_softmax", {rows.slice(1, 0, 1).clone(), -1, false}).defined()) << "short";
  EXPECT_FALSE(run("aten::_softmax", {at::randn({2, 4097}), -1, false}).defined()) << "long";
  EXPECT_FALSE(run("aten::_softmax_backward_data", {rows, rows, -1, at::kHalf}).defined());
}

TEST_F(FunctionKernel, ResultsLieAsTheArguments) {
  const at::Tensor transposed = at::rand({3, 5}).t();
  EXPECT_EQ(run("aten::exp", {transposed}).strides(), transposed.strides());
  EXPECT_TRUE(run("aten::exp", {x.slice(0, 3, 9)}).equal(run("aten::exp", {x}).slice(0, 3, 9)));
}

TEST_F(FunctionKernel, TakesPartsOfRows) {
  const at::Tensor wide = at::randn({3, 2, 256});
  const at::Tensor part = wide.slice(2, 64, 128);
  for (const char* op : {"aten::tanh", "aten::exp", "aten::silu"}) {
    const at::Tensor result = run(op, {part});
    ASSERT_TRUE(result.defined()) << op;
    EXPECT_TRUE(result.is_contiguous());
    EXPECT_TRUE(result.equal(run(op, {part.contiguous()}))) << op;
  }
  const at::Tensor gradient = at::randn({3, 2, 64});
  const at::Tensor expected = run("aten::silu_backward", {gradient, part.contiguous()});
  EXPECT_TRUE(run("aten::silu_backward", {gradient, part}).equal(expected));
  const at::Tensor gap = at::randn({3, 2, 65}).slice(2, 1);
  EXPECT_TRUE(run("aten::silu_backward", {gap, part}).equal(run("aten::silu_backward", {gap.contiguous(), part})));
  EXPECT_TRUE(run("aten::exp", {wide.select(1, 0)}).defined());
}

TEST_F(FunctionKernel, OtherPartsAreLeftAlone) {
  const at::Tensor wide = at::randn({64, 256});
  EXPECT_FALSE(run("aten::exp", {wide.slice(1, 0, 32)}).defined()) << "many short pieces";
  EXPECT_FALSE(run("aten::exp", {wide.slice(1, 0, 256, 2)}).defined());
  EXPECT_FALSE(run("aten::exp", {wide.slice(1, 0, 64).t()}).defined());
  EXPECT_FALSE(run("aten::exp", {wide.slice(1, 0, 64).unsqueeze(1)}).defined()) << "its result may lie otherwise";
  EXPECT_FALSE(run("aten::exp", {wide.as_strided({3, 64}, {32, 1})}).defined()) << "overlap";
  EXPECT_FALSE(run("aten::silu_backward", {at::randn({64, 64}).t(), wide.slice(1, 0, 64)}).defined());
  EXPECT_FALSE(run("aten::_softmax", {wide.slice(1, 0, 64), 1, false}).defined()) << "rows";
  EXPECT_FALSE(run("aten::exp", {wide.slice(1, 0, 64).to(at::kDouble)}).defined());
}

TEST_F(FunctionKernel, OtherCallsAreLeftAlone) {
  EXPECT_FALSE(run("aten::silu", {at::empty_strided({1, 0, 3}, {6, 6, 2})}).defined());
  EXPECT_FALSE(run("aten::exp", {x.to(at::kDouble)}).defined());
  EXPECT_FALSE(run("aten::exp", {x.to(at::kInt)}).defined());
  EXPECT_FALSE(run("aten::exp", {x.slice(0, 0, 10, 2)}).defined()) << "with gaps";
  EXPECT_FALSE(run("aten::silu_backward", {at::ones({}).expand({1001}), x}).defined()) << "lie otherwise";
  EXPECT_FALSE(run("aten::gelu", {x, "other"}).defined());
  EXPECT_FALSE(run("aten::exp_", {x}).defined()) << "writes";
  EXPECT_FALSE(run("aten::lgamma", {x}).defined());
}

TEST_F(FunctionKernel, OnlyIfTheFlagsAskForIt) {
  for (int fusion : {0, 1, 2}) {
    config().fusion.set(fusion);
    EXPECT_FALSE(run("aten::exp", {x}).defined());
  }
  config().fusion.set(3);
  config().disabled_passes.set("fusion");
  EXPECT_FALSE(run("aten::exp", {x}).defined());
}

// The same bits, whoever computes.
TEST_F(FunctionKernel, ComputesAsGraphsDo) {
  for (const bool in_a_group : {false, true}) {
    Trace trace;
    const Value leaf = add_leaf(trace, x);
    Value result = add_simple(trace, make_op("aten::tanh"), {{leaf}}, geometry_of(x));
    if (in_a_group) {
      const Value negative = add_simple(trace, make_op("aten::neg"), {{leaf}}, geometry_of(x));
      result = add_simple(trace, make_op("aten::tanh"), {{negative}}, geometry_of(x));
    }
    const auto outputs = compile(trace, result)->run({trace.leaves(), {}}).outputs;
    EXPECT_TRUE(outputs[0].tensor.equal(run("aten::tanh", {in_a_group ? -x : x})));
  }
}

} // namespace
} // namespace lazyplug
