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

TEST_F(SmallPointwiseTest, ClampsWhereBoundsMayBeMissing) {
  const c10::IValue none;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor counts = at::arange(6) - 3;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    at::Tensor x = x_.to(dtype);
    x.select(0, 0).fill_(kNan);
    x.select(0, 1).fill_(-0.0);
    for (const auto& [least, most] : std::vector<std::pair<c10::IValue, c10::IValue>>{
             {-0.5, 0.5},
             {none, 0.5},
             {-0.5, none},
             {0, 1},
             {0.5, -0.5},
             {0.0, none},
             {none, -0.0}}) {
      expect_same("aten::clamp", {x, least, most});
    }
  }
  expect_same("aten::clamp", {counts, -1, 1});
  expect_none("aten::clamp", {counts, none, 1});
  expect_none("aten::clamp", {counts, -0.5, 1});
  expect_none("aten::clamp", {x_, none, none}); // PyTorch's raises
}

TEST_F(SmallPointwiseTest, TakesNumbersBesideGaps) {
  const at::Tensor x = at::randn({2, 3, 8}).slice(2, 0, 4);
  expect_same("aten::add.Tensor", {number(2), x, 0.3});
  expect_same("aten::sub.Tensor", {number(2), x, 1});
  expect_same("aten::mul.Tensor", {x, number(0.1)});
  expect_none("aten::add.Tensor", {x, number(2), 0.3});                                  // rounds by place
  expect_none("aten::add.Tensor", {number(2), x.slice(2, 0, 1).expand({2, 3, 4}), 0.3}); // likewise
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
  expect_none("aten::mul.Tensor", {x_, y_.to(at::kDouble)});                   // promoted
  expect_none("aten::mul.Tensor", {x_.to(at::kInt), y_.to(at::kInt)});         // no such kernels
  expect_none("aten::mul.Tensor", {x_, at::empty({37, 3}).t()});               // other strides
  expect_none("aten::mul.Tensor", {at::randn({64, 65}), at::randn({64, 65})}); // large
  expect_none("aten::mul.Tensor", {at::randn({1, 65}), at::randn({64, 1})});   // likewise
  expect_none("aten::mul.Tensor", {at::empty({0}), at::empty({0})});
  expect_none("aten::mul.Tensor", {at::randn({1}), at::empty({0})});
  expect_none("aten::mul.Tensor", {at::randn({2}), at::empty({3})}); // an error
  expect_none("aten::mul.Tensor", {x_.expand({2, 3, 37}), at::randn({2, 3, 37}).transpose(0, 1).contiguous()});
  expect_none("aten::tanh", {at::randn({3, 8}).slice(1, 0, 4)}); // as in a graph
  expect_none("aten::neg", {at::_neg_view(x_)});
  expect_none("aten::add.Tensor", {x_, y_, true});
  expect_none("aten::add.Tensor", {x_, number(2), 0.3});           // rounds by place
  expect_none("aten::add.Tensor", {x_, at::randn({3, 1}), 0.3});   // likewise
  expect_none("aten::tanh_backward", {x_, number(0.3)});           // likewise
  expect_none("aten::tanh_backward", {x_, at::randn({1, 37}), 1}); // likewise
  expect_none("aten::neg", {c10::IValue()});
  expect_none("aten::maximum", {x_, y_}); // of floats
  EXPECT_EQ(make_small_calls(op_of("aten::tanh_")), nullptr);
  EXPECT_EQ(make_small_pointwise(op_of("aten::add.out")), nullptr);
}

TEST_F(SmallPointwiseTest, ComputesTruths) {
  const at::Tensor a = x_ > 0;
  const at::Tensor b = at::randn({37}) > 0;
  for (const char* op :
       {"aten::bitwise_and.Tensor", "aten::bitwise_or.Tensor", "aten::bitwise_xor.Tensor", "aten::logical_and"}) {
    expect_same(op, {a, b});
  }
  expect_same("aten::bitwise_not", {a});
  expect_same("aten::logical_not", {a});
  expect_none("aten::logical_and", {x_, y_});
  expect_none("aten::bitwise_and.Tensor", {a.to(at::kLong), a.to(at::kLong)});
  expect_none("aten::eq.Tensor", {a, b});
  at::Tensor written = a.clone();
  EXPECT_TRUE(run("aten::bitwise_and_.Tensor", {written, b}).is_same(written));
  EXPECT_TRUE(at::equal(written, at::bitwise_and(a, b)));
}

TEST_F(SmallPointwiseTest, TakesWhereConditionsHold) {
  const at::Tensor condition = at::randn({37}) > 0;
  expect_same("aten::where.self", {condition, x_, y_});
  expect_same("aten::where.self", {x_ > 0, x_, at::randn({}, at::kFloat)});
  expect_same("aten::where.self", {x_ > 0, x_.to(at::kDouble), y_.to(at::kDouble)});
  expect_same("aten::where.self", {x_ > 0, at::arange(37), at::arange(37, 74)});
  expect_same("aten::masked_fill.Scalar", {x_, condition, -INFINITY});
  expect_none("aten::where.self", {(x_ > 0).to(at::kByte), x_, y_});
  expect_none("aten::where.self", {x_ > 0, x_, y_.to(at::kDouble)});
  at::Tensor written = x_.clone();
  EXPECT_TRUE(run("aten::masked_fill_.Scalar", {written, condition, 2}).is_same(written));
  EXPECT_TRUE(at::equal(written, x_.masked_fill(condition, 2)));
}

TEST_F(SmallPointwiseTest, ComputesIntegers) {
  const at::Tensor a = at::arange(-50, 61).view({3, 37}) * 0x123456789ABCDE;
  const at::Tensor b = at::arange(37) - 11;
  for (const char* op : {"aten::mul.Tensor", "aten::maximum", "aten::minimum", "aten::lt.Tensor", "aten::eq.Tensor"}) {
    expect_same(op, {a, b});
    expect_same(op, {b, b});
  }
  expect_same("aten::add.Tensor", {a, b, 3});
  expect_same("aten::sub.Tensor", {a, b, (int64_t{1} << 62) + 1});
  expect_same("aten::sub.Tensor", {a, b, 0});
  expect_same("aten::rsub.Scalar", {a, (int64_t{1} << 53) + 1, 1});
  expect_same("aten::eq.Scalar", {b, 3});
  expect_same("aten::clamp", {b, -3, 4});
  expect_same("aten::neg", {a});
  expect_none("aten::eq.Scalar", {b, 3.5});
  expect_none("aten::clamp", {b, -3, c10::IValue()});
  expect_none("aten::div.Tensor", {b, b});
  expect_none("aten::pow.Tensor_Scalar", {b, 2});
}

TEST_F(SmallPointwiseTest, ClampsOnOneSide) {
  const at::Tensor x = at::cat({x_.view({-1}), at::tensor({NAN, INFINITY, -INFINITY, -0.0F})});
  expect_same("aten::clamp", {x, 0.1, c10::IValue()});
  expect_same("aten::clamp", {x, c10::IValue(), 0.1});
  expect_same("aten::clamp", {x, 0, c10::IValue()});
}

// Shapes, broadcast or with gaps, as they come: what is computed lies, and is, as PyTorch's kernels have it.
TEST_F(SmallPointwiseTest, ComputesWhatIsSpreadAsPyTorchDoes) {
  at::manual_seed(1);
  const auto random = [](int64_t end) { return at::randint(end, {1}).item<int64_t>(); };
  const auto tensor_for = [&](std::vector<int64_t> sizes) {
    for (auto& size : sizes) {
      size = random(4) == 0 ? 1 : size;
    }
    sizes.erase(sizes.begin(), sizes.begin() + random(static_cast<int64_t>(sizes.size()) / 2 + 1));
    if (random(4) == 0 && !sizes.empty()) {
      const int64_t dim = random(static_cast<int64_t>(sizes.size()));
      sizes[dim] = 2 * sizes[dim] + 1;
      return at::randn(sizes).slice(dim, 1, sizes[dim], 2);
    }
    if (random(6) == 0 && sizes.size() > 1) {
      std::swap(sizes[0], sizes[1]);
      return at::randn(sizes).transpose(0, 1);
    }
    return at::randn(sizes);
  };
  int num_computed = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<int64_t> sizes(random(5));
    for (auto& size : sizes) {
      size = std::array{1, 2, 3, 5}[random(4)];
    }
    const char* op = std::array{"aten::mul.Tensor", "aten::sub.Tensor", "aten::lt.Tensor", "aten::addcmul"}[random(4)];
    std::vector<c10::IValue> arguments{tensor_for(sizes), tensor_for(sizes)};
    if (op_of(op).num_args() == 4) {
      arguments.emplace_back(tensor_for(sizes));
    }
    if (op_of(op).num_args() > 2) {
      arguments.emplace_back(1);
    }
    num_computed += run(op, arguments).defined() ? 1 : 0;
    if (run(op, arguments).defined()) {
      expect_same(op, arguments);
    }
    const at::Tensor self = arguments[0].toTensor();
    const at::Tensor kept = self.clone();
    const at::Tensor other = arguments[1].toTensor();
    if (run("aten::mul_.Tensor", {self, other}).defined()) {
      EXPECT_TRUE(at::equal(self, kept * other)) << i;
    } else {
      EXPECT_TRUE(at::equal(self, kept)) << i;
    }
  }
  EXPECT_GT(num_computed, 1500);
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
  EXPECT_TRUE(run("aten::copy_", {written, x_[0], false}).is_same(written));
  EXPECT_TRUE(at::equal(written, x_[0].expand({3, 37})));
  for (const auto dtype : {at::kBool, at::kByte, at::kInt, at::kLong, at::kFloat, at::kDouble}) {
    const at::Tensor source = (at::randn({37}, at::kDouble) * 1e9).abs().to(dtype);
    for (const auto to : {at::kFloat, at::kDouble, at::kLong}) {
      at::Tensor target = at::zeros({3, 37}, to);
      const bool is_copied = run("aten::copy_", {target, source, false}).defined();
      EXPECT_EQ(is_copied, to != at::kLong || c10::isIntegralType(dtype, /*includeBool=*/true));
      EXPECT_TRUE(!is_copied || at::equal(target, source.to(to).expand({3, 37})));
    }
  }
  expect_none("aten::copy_", {written, x_.to(at::kHalf), false});
  expect_none("aten::copy_", {at::zeros({3, 37}, at::kInt), x_, false});
  for (const auto dtype : {at::kInt, at::kLong, at::kComplexFloat}) {
    const at::Tensor whole = at::zeros({4, 37}, dtype);
    const at::Tensor column = whole.slice(1, 5, 6);
    const at::Tensor source = (x_[0].slice(0, 0, 1) * 100).to(dtype);
    EXPECT_TRUE(run("aten::copy_", {column, source, false}).is_same(column));
    EXPECT_TRUE(at::equal(column, source.expand({4, 1})));
    EXPECT_TRUE(at::equal(whole.slice(1, 6), at::zeros({4, 31}, dtype)));
  }
  at::Tensor counts = at::ones({2, 3}, at::kLong);
  EXPECT_TRUE(run("aten::fill_.Scalar", {counts[1], (int64_t{1} << 60) + 1}).defined());
  EXPECT_TRUE(at::equal(counts, at::tensor({int64_t{1}, (int64_t{1} << 60) + 1}).unsqueeze(1).expand({2, 3})));
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
