#include "lowering/calls/make_small_calls.h"

#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

using MakeSmallCallsTest = SmallCallsTest;

TEST_F(MakeSmallCallsTest, Multiplies) {
  const at::Tensor a = at::randn({4, 6});
  const at::Tensor b = at::randn({5, 6}).t();
  expect_same("aten::mm", {a, b});
  expect_same("aten::addmm", {at::randn({5}), a, b, 1, 1});
  expect_none("aten::mm", {a, a});
  expect_none("aten::mm", {a, b.to(at::kDouble)});
  expect_none("aten::addmm", {at::randn({5}), a, b, 0.5, 1});
}

TEST_F(MakeSmallCallsTest, MultipliesVectors) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor a = at::randn({1001}).to(dtype);
    const at::Tensor b = at::randn({1001}).to(dtype);
    expect_same("aten::dot", {a, b});
    expect_same("aten::dot", {a.slice(0, 0, 1001, 3), b.slice(0, 0, 334)});
    expect_same("aten::dot", {a.slice(0, 0, 1), b.slice(0, 1, 2)});
    expect_same("aten::dot", {a, a});
  }
  expect_none("aten::dot", {x_[0], y_[0].to(at::kDouble)});
  expect_none("aten::dot", {x_[0], at::randn({36})});
  expect_none("aten::dot", {at::randn({0}), at::randn({0})});
  expect_none("aten::dot", {at::ones({4}, at::kLong), at::ones({4}, at::kLong)});
}

TEST_F(MakeSmallCallsTest, AddsUp) {
  const c10::IValue none;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({3, 4, 5}).to(dtype);
    expect_same("aten::sum", {x, none});
    expect_same("aten::mean", {x, none});
    for (const bool keeps_dims : {false, true}) {
      expect_same("aten::sum.dim_IntList", {x, std::vector<int64_t>{-1}, keeps_dims, none});
      expect_same("aten::mean.dim", {x, std::vector<int64_t>{0, 1}, keeps_dims, none});
      expect_same("aten::sum.dim_IntList", {x, none, keeps_dims, none});
    }
  }
  expect_none("aten::sum", {x_, static_cast<int64_t>(at::kDouble)});
  expect_none("aten::sum", {x_.t(), none});
  expect_none("aten::sum.dim_IntList", {x_, std::vector<int64_t>{2}, false, none}); // there is no such dimension
  expect_none("aten::sum.dim_IntList", {x_, std::vector<int64_t>{1, -1}, false, none});
}

TEST_F(MakeSmallCallsTest, Searches) {
  const c10::IValue none;
  const at::Tensor x = at::randn({3, 4, 5});
  for (const char* op : {"aten::max", "aten::min"}) {
    expect_same(op, {x});
  }
  for (const char* op : {"aten::argmax", "aten::argmin"}) {
    for (const bool keeps_dims : {false, true}) {
      expect_same(op, {x, none, keeps_dims});
      expect_same(op, {x, 1, keeps_dims});
      expect_same(op, {x[0][0][0], -1, keeps_dims});
    }
    expect_none(op, {x, 3, false}); // there is no such dimension
    expect_none(op, {x, -4, false});
    expect_none(op, {x[0][0][0], 1, false});
  }
  expect_same("aten::any", {x.gt(0)});
  expect_same("aten::all.dim", {x.gt(0), -1, true});
  expect_same("aten::amax", {x, std::vector<int64_t>{-1}, false});
  expect_none("aten::any", {x});
  expect_none("aten::max", {at::zeros({0})}); // an error
  EXPECT_EQ(make_small_calls(op_of("aten::max.dim")), nullptr) << "two results";
}

TEST_F(MakeSmallCallsTest, Concatenates) {
  const auto list = [](std::vector<at::Tensor> tensors) { return c10::IValue(std::move(tensors)); };
  for (const auto dtype : {at::kFloat, at::kBool, at::kLong, at::kBFloat16, at::kComplexDouble}) {
    const at::Tensor a = (at::randn({2, 3, 4}) * 9).to(dtype);
    const at::Tensor b = (at::randn({2, 5, 4}) * 9).to(dtype);
    expect_same("aten::cat", {list({a, b, a}), 1});
    expect_same("aten::cat", {list({a, a}), -3});
    expect_same("aten::cat", {list({b}), 2});
    for (const int64_t dim : {0, 1, 2, 3, -1, -4}) {
      expect_same("aten::stack", {list({a, a, a}), dim});
    }
    expect_same("aten::stack", {list({a[0][0][0], b[0][0][0]}), 0});
  }
  expect_same("aten::cat", {list({x_.slice(0, 0, 1), y_.slice(0, 1, 3)}), 0});
  expect_none("aten::cat", {list({x_, y_.to(at::kDouble)}), 0});
  expect_none("aten::cat", {list({x_.t(), y_.t()}), 0});
  expect_none("aten::cat", {list({x_, at::empty({0})}), 0});
  expect_none("aten::cat", {list({x_, at::randn({3, 36})}), 0}); // an error
  expect_none("aten::cat", {list({x_, y_}), 2});                 // likewise
  expect_none("aten::cat", {list({x_[0][0], y_[0][0]}), 0});     // likewise
  expect_none("aten::cat", {list({}), 0});                       // likewise
  expect_none("aten::stack", {list({x_, x_.slice(0, 1)}), 0});   // likewise
  expect_none("aten::cat", {list({at::randn({4096}), x_[0]}), 0});
  expect_none("aten::cat", {list({at::randn({1, 2, 1, 1}), at::randn({1, 2, 1, 1})}), 0});
}

TEST_F(MakeSmallCallsTest, OfOtherOpsThereAreNone) {
  EXPECT_EQ(make_small_calls(op_of("aten::nansum")), nullptr);
}

TEST_F(MakeSmallCallsTest, MakesNumbers) {
  const c10::IValue none;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kBool}) {
    for (const c10::IValue& value : std::vector<c10::IValue>{0.5, -3, true}) {
      const bool overflows = dtype == at::kBool && !value.isBool();
      overflows ? void() : expect_same("aten::scalar_tensor", {value, static_cast<int64_t>(dtype), none, none, none});
    }
  }
  expect_same("aten::scalar_tensor", {2.5, none, none, none, none});
  expect_none("aten::scalar_tensor", {1, none, static_cast<int64_t>(at::kSparse), none, none});
}

TEST_F(MakeSmallCallsTest, TakesAndPutsRows) {
  const auto indices = [](std::vector<std::optional<at::Tensor>> of) {
    return c10::List<std::optional<at::Tensor>>(of);
  };
  const at::Tensor index = at::randint(-3, 3, {4}, at::kLong);
  expect_same("aten::index.Tensor", {x_, indices({index})});
  expect_same("aten::index.Tensor", {x_, indices({std::nullopt, index})});
  expect_same("aten::index.Tensor", {x_, indices({index, index})});
  expect_none("aten::index.Tensor", {x_, indices({at::full({}, 1, at::kLong)})});
  expect_none("aten::index.Tensor", {x_, indices({at::zeros({1'000}, at::kLong)})}); // not small
  const at::Tensor written = x_.clone();
  ASSERT_TRUE(run("aten::index_put_", {written, indices({index}), at::ones({}), false}).is_same(written));
  EXPECT_TRUE(at::equal(written, x_.index_put({index}, at::ones({}))));
  expect_none("aten::index_put_", {written, indices({index}), at::ones({}), true});
  expect_none("aten::index_put_", {written, indices({index}), at::ones({4}), false});
}

} // namespace
} // namespace lazyplug
