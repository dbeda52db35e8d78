#include "lowering/ir/dump.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(Dump, NamesOperandsViewsScalarsAndLayouts) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({4}));
  const Value memory = trace.add_empty(floats({2}));
  const Value sum = add_add(trace, {memory}, view_of(trace, a, floats({2})), floats({2}), 0.5);
  EXPECT_EQ(to_text(trace, a.node), "%0 = device_data(0)  # Float[4] strides=[1]");
  EXPECT_EQ(to_text(trace, memory.node), "%1 = empty()  # Float[2] strides=[1]");
  EXPECT_EQ(
      to_text(trace, sum.node),
      "%2 = aten::add.Tensor(%1, %0[Float[2] strides=[1]], 0.5)  # Float[2] strides=[1]");
}

TEST(Dump, NamesListsConstantsAndUndefinedTensors) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  static const OpInfo& cat = make_op("aten::cat");
  const auto signature = make_signature(cat, {a_list(3), a_constant(-1)}, {floats({4})});
  const NodeId call = trace.add_call(signature, {{a}, {}, {a}}, {}, 0, nullptr);
  EXPECT_EQ(to_text(trace, call), "%1 = aten::cat([%0, None, %0], -1)  # Float[4] strides=[1]");
}

TEST(Dump, NamesSeedsAndLocations) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  static const OpInfo& op = make_op("aten::bernoulli_", "float");
  const auto signature = make_signature(op, {an_operand(), a_scalar(), a_seed()}, {}, {true});
  const NodeId call = trace.add_call(signature, Operand{a}, {c10::IValue(0.5), c10::IValue(7)}, 1, "model.py:3");
  EXPECT_EQ(to_text(trace, call), "%1 = aten::bernoulli_.float(%0, 0.5, seed=7)  # Float[2] strides=[1] at model.py:3");
}

TEST(Dump, NumbersTheOutputsOfNodesThatHaveSeveral) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  static const OpInfo& sort = make_op("aten::sort");
  const auto signature = make_signature(
      sort,
      {an_operand(), a_constant(0), a_constant(false)},
      {floats({2}), Geometry::contiguous(at::kLong, {2})});
  const NodeId call = trace.add_call(signature, Operand{a}, {}, 0, nullptr);
  const Value result = add_relu(trace, {Value{call, 1}}, floats({2}));
  EXPECT_EQ(to_text(trace, call), "%1 = aten::sort(%0, 0, False)  # Float[2] strides=[1]; Long[2] strides=[1]");
  EXPECT_EQ(to_text(trace, result.node), "%2 = aten::relu(%1.1)  # Float[2] strides=[1]");
}

TEST(Dump, ProgramHasOnlyWhatItsRootsNeed) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Value b = add_relu(trace, {a}, floats({2}));
  add_relu(trace, {b}, floats({2}));
  EXPECT_EQ(
      to_text(trace, {b, a}),
      "%0 = device_data(0)  # Float[2] strides=[1]\n"
      "%1 = aten::relu(%0)  # Float[2] strides=[1]\n"
      "return %1, %0\n");
  EXPECT_EQ(to_text(trace, c10::ArrayRef<Value>()), "return \n");
}

TEST(Dump, DotHasNodesEdgesAndMarkedRoots) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  static const OpInfo& op = make_op("aten::gelu");
  const auto signature = make_signature(op, {an_operand(), a_constant("no\"ne")}, {floats({2})});
  const NodeId call = trace.add_call(signature, Operand{a}, {}, 0, "model.py:3");
  EXPECT_EQ(
      to_dot(trace, Value{call, 0}),
      "digraph G {\n"
      "  n0 [shape=ellipse, label=\"%0 = device_data(0)\\nFloat[2] strides=[1]\"];\n"
      "  n1 [shape=box, peripheries=2, label=\"%1 = aten::gelu(%0, \\\"no\\\\\\\"ne\\\")\\nFloat[2] "
      "strides=[1]\\nmodel.py:3\"];\n"
      "  n0 -> n1 [label=\"0\"];\n"
      "}\n");
}

} // namespace
} // namespace lazyplug
