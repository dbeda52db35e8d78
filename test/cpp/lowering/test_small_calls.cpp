#include "lowering/small_calls.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/config.h"
#include "lowering/function_kernel.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

using Arguments = std::vector<c10::IValue>;

// "aten::add.Tensor"
const OpInfo& op_of(const std::string& name) {
  const size_t dot = std::min(name.find('.'), name.size());
  return make_op(name.substr(0, dot).c_str(), dot < name.size() ? name.substr(dot + 1).c_str() : "");
}

void* memory_of(const c10::TensorImpl& tensor, bool /*written*/) {
  return const_cast<void*>(tensor.data());
}

at::Tensor number(double value) {
  at::Tensor result = at::scalar_tensor(value, at::kDouble);
  result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

class SmallCallsTest : public testing::Test {
 protected:
  static at::Tensor run(const char* op, const Arguments& arguments) {
    const auto calls = SmallCalls::make(op_of(op));
    return calls ? calls->run(arguments, memory_of) : at::Tensor();
  }

  // Runs it, and compares with what a graph of the one call computes: a function of ours, or PyTorch's kernel.
  static void expect_same(const char* op, const Arguments& arguments) {
    const at::Tensor result = run(op, arguments);
    ASSERT_TRUE(result.defined()) << op;
    c10::Stack expected(arguments.begin(), arguments.end());
    if (!run_function(op_of(op), expected)) {
      op_of(op).handle().callBoxed(expected);
    }
    ASSERT_EQ(result.dtype(), expected[0].toTensor().dtype()) << op;
    EXPECT_EQ(result.strides(), expected[0].toTensor().strides()) << op;
    EXPECT_TRUE(at::equal(result.contiguous().view(at::kByte), expected[0].toTensor().contiguous().view(at::kByte)))
        << op;
  }

  static void expect_none(const char* op, const Arguments& arguments) {
    EXPECT_FALSE(run(op, arguments).defined()) << op;
  }

  const at::Tensor x_ = at::randn({3, 37});
  const at::Tensor y_ = at::randn({3, 37});
};

TEST_F(SmallCallsTest, ComputesElementByElement) {
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

TEST_F(SmallCallsTest, ComputesFunctionsAsGraphsDo) {
  if (!is_function_here(op_of("aten::tanh"))) {
    GTEST_SKIP() << "PyTorch uses neither AVX2 nor AVX-512 here, so there are no functions of ours";
  }
  for (const char* op : {"aten::tanh", "aten::sigmoid", "aten::exp", "aten::silu"}) {
    expect_same(op, {x_});
    expect_none(op, {x_.to(at::kDouble)});
  }
  expect_same("aten::softplus", {x_, 2.0, 0.5});
}

TEST_F(SmallCallsTest, TakesNumbers) {
  for (const double value : {0.1, -3.0, 0.0, -0.0, 16777217.0, 1e300}) {
    expect_same("aten::mul.Tensor", {x_, number(value)});
    expect_same("aten::mul.Tensor", {number(value), x_});
    expect_same("aten::div.Tensor", {x_, number(value)});
    expect_same("aten::add.Tensor", {x_, number(value), 1});
    expect_same("aten::sub.Tensor", {number(value), x_, 1});
  }
}

TEST_F(SmallCallsTest, KeepsStrides) {
  const at::Tensor x = x_.t();
  expect_same("aten::mul.Tensor", {x, y_.t()});
  const at::Tensor part = at::randn({8, 8})[3];
  expect_same("aten::neg", {part});
}

TEST_F(SmallCallsTest, ComputesRowsOfMatrices) {
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

TEST_F(SmallCallsTest, WritesTheFirstArgument) {
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

TEST_F(SmallCallsTest, Multiplies) {
  const at::Tensor a = at::randn({4, 6});
  const at::Tensor b = at::randn({5, 6}).t();
  expect_same("aten::mm", {a, b});
  expect_same("aten::addmm", {at::randn({5}), a, b, 1, 1});
  expect_none("aten::mm", {a, a});
  expect_none("aten::mm", {a, b.to(at::kDouble)});
  expect_none("aten::addmm", {at::randn({5}), a, b, 0.5, 1});
}

TEST_F(SmallCallsTest, LeavesTheRestToOthers) {
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
  EXPECT_EQ(SmallCalls::make(op_of("aten::tanh_")), nullptr);
  EXPECT_EQ(SmallCalls::make(op_of("aten::add.out")), nullptr);
  EXPECT_EQ(SmallCalls::make(op_of("aten::cat")), nullptr);
}

TEST_F(SmallCallsTest, NeedsToKnowWhereTensorsAre) {
  const auto nowhere = [](const c10::TensorImpl&, bool) -> void* { return nullptr; };
  const Arguments arguments{x_, y_};
  EXPECT_FALSE(SmallCalls::make(op_of("aten::mul.Tensor"))->run(arguments, nowhere).defined());
}

TEST_F(SmallCallsTest, IsOffWithoutFusion) {
  {
    const ScopedFlag<int64_t> off(config().fusion, 0);
    expect_none("aten::neg", {x_});
  }
  expect_same("aten::neg", {x_});
}

} // namespace
} // namespace lazyplug
