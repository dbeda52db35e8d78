#include "lowering/ir/difference.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

using Kind = Difference::Kind;

struct Program {
  Trace trace;
  std::vector<Value> roots;
};

// sum = cat(a, a, dim); product = sum * sum
Program make_program(int64_t size = 2, int64_t dim = 0, bool more = false) {
  Program p;
  static const OpInfo& cat = make_op("aten::cat");
  const Value a = add_leaf(p.trace, at::ones({size, size}));
  const Geometry both = dim == 0 ? floats({2 * size, size}) : floats({size, 2 * size});
  const Value sum{
      p.trace.add_call(make_signature(cat, {a_list(2), a_constant(dim)}, {both}), {{a}, {a}}, {}, 0, "a.py:1"),
      0};
  p.roots.push_back(add_mul(p.trace, {sum}, {sum}, both));
  if (more) {
    p.roots.push_back(add_relu(p.trace, {sum}, both));
  }
  return p;
}

Difference difference(const Program& now, const Program& then) {
  return first_difference(now.trace, now.roots, then.trace, then.roots);
}

TEST(Difference, NamesShapesOfLeaves) {
  const Difference found = difference(make_program(3), make_program(2));
  EXPECT_EQ(found.kind, Kind::kShape);
  EXPECT_EQ(found.node, 0);
  EXPECT_EQ(found.what, "the layout is Float[3, 3] strides=[3, 1], was Float[2, 2] strides=[2, 1]");
}

TEST(Difference, NamesDtypes) {
  Trace now;
  Trace then;
  add_leaf(now, at::ones({2}, at::kDouble));
  add_leaf(then, at::ones({2}));
  const Difference found = first_difference(now, {}, then, {});
  EXPECT_EQ(found.kind, Kind::kDtype);
  EXPECT_EQ(found.what, "the layout is Double[2] strides=[1], was Float[2] strides=[1]");
}

TEST(Difference, NamesConstantsByTheirArgument) {
  const Difference found = difference(make_program(2, 1), make_program(2, 0));
  EXPECT_EQ(found.kind, Kind::kConstant);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.what, "argument 'dim' is 1, was 0");
}

TEST(Difference, NamesOpsAndEnds) {
  Program now = make_program();
  Program then = make_program();
  add_relu(now.trace, {now.roots[0]}, floats({4, 2}));
  EXPECT_EQ(difference(now, then).kind, Kind::kEnd);
  EXPECT_EQ(difference(now, then).node, 3);
  EXPECT_EQ(difference(now, then).what, "it goes on with aten::relu");
  EXPECT_EQ(difference(then, now).what, "it ends before aten::relu");
  add_mul(then.trace, {then.roots[0]}, {then.roots[0]}, floats({4, 2}));
  const Difference found = difference(now, then);
  EXPECT_EQ(found.kind, Kind::kOp);
  EXPECT_EQ(found.node, 3);
  EXPECT_EQ(found.what, "the op is aten::relu, was aten::mul.Tensor");
}

TEST(Difference, NamesOperandsAndViews) {
  Program programs[3];
  for (int i = 0; i < 3; ++i) {
    const Value a = add_leaf(programs[i].trace, at::ones({4}));
    const Value b = add_leaf(programs[i].trace, at::ones({4}));
    const Operand other = i == 2 ? view_of(programs[i].trace, b, floats({1})) : Operand{i == 0 ? a : b};
    programs[i].roots.push_back(add_mul(programs[i].trace, {a}, other, floats({4})));
  }
  EXPECT_EQ(difference(programs[1], programs[0]).kind, Kind::kOperand);
  EXPECT_EQ(difference(programs[1], programs[0]).what, "operand 1 is %1, was %0");
  EXPECT_EQ(difference(programs[2], programs[1]).kind, Kind::kShape);
  EXPECT_EQ(difference(programs[2], programs[1]).what, "the view of operand 1 is Float[1] strides=[1], was the whole");
}

TEST(Difference, NamesResults) {
  Program now = make_program(2, 0, true);
  Program then = make_program(2, 0, true);
  then.roots.pop_back();
  const Difference found = difference(now, then);
  EXPECT_EQ(found.kind, Kind::kResults);
  EXPECT_EQ(found.node, 3);
  EXPECT_EQ(found.what, "%3, of aten::relu, lives on");
  EXPECT_STREQ(to_string(found.kind), "results");
  EXPECT_EQ(difference(then, now).what, "%3, of aten::relu, does not live on");
}

TEST(Difference, NamesTypesOfNumbers) {
  static const OpInfo& add = make_op("aten::add", "Scalar");
  const c10::IValue numbers[2] = {1.0, 1};
  Program programs[2];
  for (int i = 0; i < 2; ++i) {
    const Value a = add_leaf(programs[i].trace, at::ones({4}));
    const ArgBinding number{ArgBinding::Kind::kScalar, 0, numbers[i]};
    const auto signature = make_signature(add, {an_operand(), number, a_constant(1)}, {floats({4})});
    programs[i].roots.push_back({programs[i].trace.add_call(signature, Operand{a}, numbers[i], 0, nullptr), 0});
  }
  const Difference found = difference(programs[1], programs[0]);
  EXPECT_EQ(found.kind, Kind::kConstant);
  EXPECT_EQ(found.what, "the type of argument 'other' is Int, was Double");
}

TEST(Difference, SimilarityPrefersTheSameShapesThenTheSameOps) {
  const Program p = make_program();
  EXPECT_GT(similarity(p.trace, make_program().trace), similarity(p.trace, make_program(2, 1).trace));
  EXPECT_GT(similarity(p.trace, make_program(2, 1).trace), similarity(p.trace, make_program(3).trace));
  EXPECT_GT(similarity(p.trace, make_program(3).trace), similarity(p.trace, Trace()));
}

TEST(Difference, ProgramsOfOtherOpsHaveNothingInCommon) {
  Trace one;
  Trace other;
  add_relu(one, {add_leaf(one, at::ones({4}))}, floats({4}));
  const Value leaf = add_leaf(other, at::ones({4}));
  add_mul(other, {leaf}, {leaf}, floats({4}));
  EXPECT_EQ(similarity(one, other), 0);
}

} // namespace
} // namespace lazyplug
