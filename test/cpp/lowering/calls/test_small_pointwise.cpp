#include "lowering/calls/small_pointwise.h"

#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

using SmallPointwiseTest = SmallCallsTest;

TEST_F(SmallPointwiseTest, ComputesElementByElement) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = x_.to(dtype);
    const at::Tensor y = y_.to(dtype);
    for (const char* op : {"aten::neg", "aten::abs", "aten::relu", "aten::reciprocal", "aten::rsqrt"}) {
      expect_same(op, {x});
    }
    for (const char* op : {"aten::mul.Tensor", "aten::div.Tensor", "aten::sigmoid_backward", "aten::tanh_backward"}) {
      expect_same(op, {x, y});
    }
    for (const auto& scale : {c10::IValue(1), c10::IValue(0), c10::IValue(-0.5)}) {
      expect_same("aten::add.Tensor", {x, y, scale});
      expect_same("aten::sub.Tensor", {x, y, scale});
    }
    expect_same("aten::threshold_backward", {x, y, 0});
  }
}

TEST_F(SmallPointwiseTest, ComputesFunctionsAsGraphsDo) {
  if (!is_function_here(op_of("aten::tanh"))) {
    GTEST_SKIP() << "PyTorch uses neither AVX2 nor AVX-512 here, so there are no functions of ours";
  }
  for (const char* op : {"aten::tanh", "aten::sigmoid", "aten::exp", "aten::silu"}) {
    expect_same(op, {x_});
    expect_none(op, {x_.to(at::kDouble)});
  }
  expect_same("aten::softplus", {x_, 2.0, 0.5});
}

TEST_F(SmallPointwiseTest, TakesNumbers) {
  for (const double value : {0.1, -3.0, 0.0, -0.0, 16777217.0, 1e300}) {
    expect_same("aten::mul.Tensor", {x_, number(value)});
    expect_same("aten::mul.Tensor", {number(value), x_});
    expect_same("aten::div.Tensor", {x_, number(value)});
    expect_same("aten::add.Tensor", {x_, number(value), 1});
    expect_same("aten::sub.Tensor", {number(value), x_, 1});
  }
}

TEST_F(SmallPointwiseTest, KeepsStrides) {
  const at::Tensor x = x_.t();
  expect_same("aten::mul.Tensor", {x, y_.t()});
  const at::Tensor part = at::randn({8, 8})[3];
  expect_same("aten::neg", {part});
}

TEST_F(SmallPointwiseTest, ComputesRowsOfMatrices) {
  const at::Tensor gates = at::randn({3, 4 * 37});
  const auto part = [&](int64_t i) { return gates.slice(1, i * 37, (i + 1) * 37); };
  expect_same("aten::neg", {part(1)});
  expect_same("aten::mul.Tensor", {part(0), part(2)});
  expect_same("aten::mul.Tensor", {x_, part(3)});
  expect_same("aten::add.Tensor", {part(1), y_, 0.3});
  expect_same("aten::mul.Tensor", {part(1), number(0.1)});
  expect_none("aten::mul.Tensor", {part(0), at::randn({37, 3}).t()});
  expect_none("aten::mul.Tensor", {at::randn({37, 3}).t(), part(0)});
}

TEST_F(SmallPointwiseTest, WritesTheFirstArgument) {
  const at::Tensor gates = at::randn({3, 2 * 37});
  const auto expect_written = [&](const char* op, const at::Tensor& self, Arguments others) {
    const at::Tensor expected = self.clone();
    c10::Stack stack{expected};
    stack.insert(stack.end(), others.begin(), others.end());
    op_of(op).handle().callBoxed(stack);
    others.insert(others.begin(), self);
    const at::Tensor result = run(op, others);
    ASSERT_TRUE(result.is_same(self)) << op;
    EXPECT_TRUE(at::equal(self, expected)) << op;
  };
  expect_written("aten::add_.Tensor", x_.clone(), {y_, 1});
  expect_written("aten::add_.Tensor", x_.clone(), {y_, -0.3});
  expect_written("aten::mul_.Tensor", x_.clone(), {number(0.1)});
  expect_written("aten::mul_.Tensor", x_.t().clone(at::MemoryFormat::Preserve), {y_.t()});
  expect_written("aten::add_.Tensor", gates.slice(1, 37), {y_, 1});
  expect_written("aten::neg_", gates.slice(1, 0, 37), {});
  const at::Tensor self = x_.clone();
  expect_written("aten::add_.Tensor", self, {self, 1});
  const at::Tensor before = gates.clone();
  expect_none("aten::add_.Tensor", {gates.slice(1, 0, 37), gates.slice(1, 1, 38), 1}); // it would read what it writes
  expect_none("aten::add_.Tensor", {x_.clone(), y_.to(at::kDouble), 1});
  expect_none("aten::add_.Tensor", {number(1), x_, 1});
  EXPECT_TRUE(at::equal(gates, before));
}

TEST_F(SmallPointwiseTest, LeavesTheRestToOthers) {
  expect_none("aten::mul.Tensor", {x_, at::randn({37})});                      // broadcast
  expect_none("aten::mul.Tensor", {x_, y_.to(at::kDouble)});                   // promoted
  expect_none("aten::mul.Tensor", {x_.to(at::kInt), y_.to(at::kInt)});         // no such kernels
  expect_none("aten::mul.Tensor", {x_, at::empty({37, 3}).t()});               // other strides
  expect_none("aten::mul.Tensor", {at::randn({64, 65}), at::randn({64, 65})}); // large
  expect_none("aten::mul.Tensor", {at::empty({0}), at::empty({0})});
  expect_none("aten::neg", {at::randn({2, 3, 8}).slice(2, 0, 4)}); // with gaps
  expect_none("aten::tanh", {at::randn({3, 8}).slice(1, 0, 4)});   // as in a graph
  expect_none("aten::neg", {at::_neg_view(x_)});
  expect_none("aten::add.Tensor", {x_, y_, true});
  expect_none("aten::add.Tensor", {x_, number(2), 0.3}); // rounds by place
  expect_none("aten::tanh_backward", {x_, number(0.3)}); // likewise
  expect_none("aten::neg", {c10::IValue()});
  expect_none("aten::neg", {at::randn({3, 1}).expand({3, 4})});
  EXPECT_EQ(make_small_calls(op_of("aten::tanh_")), nullptr);
  EXPECT_EQ(make_small_calls(op_of("aten::add.out")), nullptr);
}

TEST_F(SmallPointwiseTest, ComparesAndRaisesToPowers) {
  const at::Tensor x = at::cat({x_, at::full({3, 1}, NAN)}, 1);
  const at::Tensor y = at::cat({x_.slice(1, 0, 9), at::randn({3, 29})}, 1);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const char* op : {"aten::eq.Tensor", "aten::ne.Tensor", "aten::lt.Tensor", "aten::ge.Tensor"}) {
      expect_same(op, {x.to(dtype), y.to(dtype)});
    }
    expect_same("aten::gt.Scalar", {x.to(dtype), 0.1});
    expect_same("aten::le.Scalar", {at::full({}, 0.1, dtype), 0.1});
    for (const auto& exponent :
         {c10::IValue(1), c10::IValue(2.0), c10::IValue(3), c10::IValue(-2), c10::IValue(-0.5)}) {
      expect_same("aten::pow.Tensor_Scalar", {x.to(dtype), exponent});
    }
    expect_none("aten::pow.Tensor_Scalar", {x.to(dtype), 2.5});
    expect_same("aten::rsub.Scalar", {x.to(dtype), 0.3, 1});
  }
  EXPECT_EQ(make_small_calls(op_of("aten::lt_.Scalar")), nullptr);
}

TEST_F(SmallPointwiseTest, CopiesAndFills) {
  const c10::IValue none;
  const auto preserve = static_cast<int64_t>(at::MemoryFormat::Preserve);
  for (const at::Tensor& x : {x_, x_.t()}) {
    expect_same("aten::clone", {x, none});
    expect_same("aten::clone", {x, preserve});
    expect_same("aten::ones_like", {x, none, none, none, none, none});
    expect_same(
        "aten::zeros_like",
        {x, static_cast<int64_t>(at::kFloat), static_cast<int64_t>(at::kStrided), c10::Device("cpu"), false, preserve});
    expect_none("aten::zeros_like", {x, static_cast<int64_t>(at::kDouble), none, none, none, none});
    expect_none("aten::clone", {x, static_cast<int64_t>(at::MemoryFormat::Contiguous)});
  }
  const at::Tensor written = at::full({3, 37}, NAN);
  EXPECT_TRUE(run("aten::copy_", {written, x_, false}).is_same(written));
  EXPECT_TRUE(at::equal(written, x_));
  EXPECT_TRUE(run("aten::fill_.Scalar", {written, -0.5}).is_same(written));
  EXPECT_TRUE(at::equal(written, at::full({3, 37}, -0.5)));
  EXPECT_TRUE(run("aten::zero_", {written}).is_same(written));
  EXPECT_TRUE(at::equal(written, at::zeros({3, 37})));
  expect_none("aten::copy_", {written, x_.to(at::kDouble), false});
  expect_none("aten::copy_", {written, x_[0], false});
}

TEST_F(SmallPointwiseTest, LeavesNumbersThatOverflowToPyTorchWhichRaises) {
  expect_none("aten::fill_.Scalar", {x_.clone(), 1e300});
  expect_none("aten::add.Tensor", {x_, y_, -1e300});
  expect_none("aten::addcmul_", {x_.clone(), x_, y_, 1e300});
  expect_none("aten::threshold_backward", {x_, y_, 1e300});
  const at::Tensor written = x_.clone();
  EXPECT_TRUE(run("aten::fill_.Scalar", {written, INFINITY}).is_same(written));
  expect_same("aten::add.Tensor", {x_.to(at::kDouble), y_.to(at::kDouble), 1e300});
}

// Which strides dimensions of one element get depends on the path that PyTorch's kernel takes.
TEST_F(SmallPointwiseTest, LeavesStridesThatSayNothingToPyTorch) {
  const at::Tensor odd = at::randn({2, 1, 3, 5}).as_strided({2, 1, 3, 5}, {15, 1, 5, 1});
  expect_none("aten::neg", {odd});
  expect_none("aten::mul.Tensor", {odd, number(2)});
  expect_none("aten::exp", {odd});
  expect_none("aten::clone", {odd, c10::IValue()});
  const at::Tensor before = odd + 1;
  EXPECT_TRUE(run("aten::add_.Tensor", {odd, number(1), 1}).is_same(odd));
  EXPECT_TRUE(at::equal(odd, before));
}

} // namespace
} // namespace lazyplug
