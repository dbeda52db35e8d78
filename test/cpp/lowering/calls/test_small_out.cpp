#include "lowering/calls/small_out.h"

#include "lowering/calls/plain_tensors.h"
#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

class SmallOutTest : public SmallCallsTest {
 protected:
  // What the call writes has the bits that PyTorch's kernel writes into a copy of it.
  static void expect_put(const char* op, const Arguments& arguments, const at::Tensor& out) {
    c10::Stack expected(arguments.begin(), arguments.end());
    expected.emplace_back(out.clone());
    op_of(op).handle().callBoxed(expected);
    ASSERT_TRUE(run(op, with(arguments, out)).is_same(out)) << op;
    EXPECT_TRUE(has_same_bits(out, expected[0].toTensor())) << op;
  }

  static Arguments with(Arguments arguments, const at::Tensor& out) {
    arguments.emplace_back(out);
    return arguments;
  }
};

TEST_F(SmallOutTest, PutsResultsIntoGivenTensors) {
  const at::Tensor truths = at::zeros({3, 37}, at::kBool);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = x_.to(dtype);
    const at::Tensor y = y_.to(dtype);
    const at::Tensor out = at::full_like(x, 9);
    expect_put("aten::add.out", {x, y, 1}, out);
    expect_put("aten::sub.out", {x, y[0], 1}, out);
    expect_put("aten::mul.out", {x, number(0.1)}, out);
    expect_put("aten::neg.out", {x}, out);
    expect_put("aten::clamp.out", {x, -0.5, 0.5}, out);
    expect_put("aten::pow.Tensor_Scalar_out", {x, 2}, out);
    expect_put("aten::where.self_out", {x.gt(0), x, y}, out);
    expect_put("aten::lt.Tensor_out", {x, y}, truths);
    expect_put("aten::ne.Scalar_out", {x, 0}, truths);
    expect_put("aten::mm.out", {x, y.t()}, at::zeros({3, 3}, dtype));
    expect_put("aten::addmm.out", {at::ones({3}, dtype), x, y.t(), 1, 1}, at::zeros({3, 3}, dtype));
    expect_put("aten::mv.out", {x, y[0]}, at::zeros({3}, dtype));
    expect_put("aten::sum.IntList_out", {x, std::vector<int64_t>{1}, false, c10::IValue()}, at::zeros({3}, dtype));
    expect_put("aten::neg.out", {x.t()}, at::zeros_like(x.t()));
    expect_put("aten::neg.out", {x[0]}, out[1]);
  }
}

TEST_F(SmallOutTest, WhatIsWrittenMayBeRead) {
  expect_put("aten::add.out", {x_, y_, 1}, y_.clone());
  const at::Tensor product = x_.clone();
  ASSERT_TRUE(run("aten::mul.out", {product, product, product}).is_same(product));
  EXPECT_TRUE(at::equal(product, x_ * x_));
  const at::Tensor difference = x_.clone();
  ASSERT_TRUE(run("aten::sub.out", {difference, difference, 1, difference}).is_same(difference));
  EXPECT_TRUE(at::equal(difference, x_ - x_));
}

TEST_F(SmallOutTest, OtherCallsAreNone) {
  const at::Tensor out = at::full_like(x_, 9);
  expect_none("aten::add.out", with({x_, y_, 1}, out.to(at::kDouble)));
  expect_none("aten::add.out", with({x_, y_, 1}, at::zeros({0})));     // is resized
  expect_none("aten::add.out", with({x_, y_, 1}, at::zeros({36, 3}))); // with a warning
  expect_none("aten::add.out", with({x_, y_, 1}, at::zeros({37, 3}).t()));
  expect_none("aten::neg.out", with({x_}, at::zeros({3, 74}).slice(1, 0, 74, 2)));
  expect_none("aten::lt.Tensor_out", with({x_, y_}, out));
  expect_none("aten::neg.out", with({at::randn({4'097})}, at::zeros({4'097})));
  // Memory that is read as another tensor, and a product's own factor: errors, or as if it had been copied before.
  const at::Tensor row = at::randn({38});
  expect_none("aten::neg.out", with({row.slice(0, 1)}, row.slice(0, 0, 37)));
  expect_none("aten::add.out", with({x_, out[0], 1}, out));
  const at::Tensor square = at::randn({3, 3});
  expect_none("aten::mm.out", with({square, x_.slice(1, 0, 3)}, square));
  EXPECT_TRUE(out.eq(9).all().item<bool>()) << "what is none has written something";
}

// With their bits, functions are computed in the same way wherever they run: see lowering/calls/function_kernel.h.
TEST_F(SmallOutTest, FunctionsAndListsHaveNone) {
  EXPECT_EQ(find_returning(op_of("aten::exp.out")) != nullptr, !is_function_here(op_of("aten::exp")));
  EXPECT_EQ(find_returning(op_of("aten::add.Tensor")), nullptr);
  EXPECT_EQ(find_returning(op_of("aten::add_.Tensor")), nullptr);
  EXPECT_EQ(find_returning(op_of("aten::max.dim_max")), nullptr) << "two results";
  EXPECT_EQ(make_small_calls(op_of("aten::nansum.out")), nullptr);
  const c10::IValue list(std::vector<at::Tensor>{x_, y_});
  expect_none("aten::cat.out", with({list, 0}, at::zeros({6, 37})));
}

} // namespace
} // namespace lazyplug
