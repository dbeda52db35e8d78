#include "lowering/ir/graph.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

GraphNode& node_of(Graph& graph, NodeId id) {
  return *std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const GraphNode& n) { return n.id() == id; });
}

size_t num_uses(GraphValue value) {
  size_t count = 0;
  for (const GraphUse* use = value.uses(); use; use = use->next()) {
    EXPECT_EQ(use->value(), value);
    ++count;
  }
  return count;
}

TEST(Graph, OfATraceHasItsNodesUsesAndRoots) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2, 3}));
  const Value sum = add_add(trace, {a}, view_of(trace, a, floats({3})), floats({2, 3}), 0.5);
  const Value changed = add_add_(trace, {sum}, {a}, 2);
  Graph graph(trace, {changed, a});
  verify(graph);
  EXPECT_EQ(
      to_text(graph),
      "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
      "%1 = aten::add.Tensor(%0, %0[Float[3] strides=[1]], 0.5)  # Float[2, 3] strides=[3, 1]\n"
      "%2 = aten::add_.Tensor(%1, %0, 2)  # Float[2, 3] strides=[3, 1]\n"
      "return %2, %0\n");
  EXPECT_EQ(num_uses(node_of(graph, 0).output(0)), 4);
  EXPECT_EQ(num_uses(node_of(graph, 2).output(0)), 1);
  EXPECT_TRUE(node_of(graph, 2).uses_of(0)->is_root());
  EXPECT_TRUE(node_of(graph, 1).uses_of(0)->is_write());
  EXPECT_EQ(node_of(graph, 2).written_values(), std::vector<GraphValue>{node_of(graph, 1).output(0)});
}

TEST(Graph, OperandsThatAreOneTensorSaySo) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({4}));
  const Operand view = view_of(trace, a, floats({2}));
  const Value once = add_mul(trace, view, view, floats({2}));
  const Value other = add_mul(trace, view, view_of(trace, a, floats({2})), floats({2}));
  const Value whole = add_mul(trace, {a}, {a}, floats({4}));
  Graph graph(trace, {once, other, whole});
  EXPECT_EQ(node_of(graph, once.node).operand(1).same_as(), 0);
  EXPECT_EQ(node_of(graph, other.node).operand(1).same_as(), 1);
  EXPECT_EQ(node_of(graph, whole.node).operand(1).same_as(), 0);
  const std::string text = to_text(graph);
  EXPECT_NE(text.find("aten::mul.Tensor(%0[Float[2] strides=[1]], same(0))"), std::string::npos) << text;
  EXPECT_EQ(to_text(parse(text)), text);
}

TEST(Graph, UsesAreReplacedAndNodesErased) {
  Graph graph = parse(
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::relu(%0)  # Float[3] strides=[1]\n"
      "%2 = aten::tanh(%1)  # Float[3] strides=[1]\n"
      "%3 = aten::mul.Tensor(%2, %2)  # Float[3] strides=[1]\n"
      "return %3, %2\n");
  graph.replace_uses(node_of(graph, 2).output(0), node_of(graph, 1).output(0));
  EXPECT_FALSE(node_of(graph, 2).has_uses());
  EXPECT_EQ(num_uses(node_of(graph, 1).output(0)), 4);
  EXPECT_EQ(graph.erase(node_of(graph, 2))->id(), 3);
  EXPECT_EQ(num_uses(node_of(graph, 1).output(0)), 3);
  EXPECT_THROW(graph.erase(node_of(graph, 1)), c10::Error) << "it is needed";
  verify(graph);
  graph.number();
  EXPECT_EQ(node_of(graph, 3).place(), 2);
  EXPECT_EQ(
      to_text(graph),
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::relu(%0)  # Float[3] strides=[1]\n"
      "%3 = aten::mul.Tensor(%1, %1)  # Float[3] strides=[1]\n"
      "return %3, %1\n");
}

TEST(Graph, ACallMayBecomeAnotherOneWithEqualResults) {
  Graph graph = parse(
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::relu(%0)  # Float[3] strides=[1]\n"
      "return %1\n");
  GraphNode& relu = node_of(graph, 1);
  EXPECT_TRUE(relu.is_as_recorded());
  graph.replace_signature(relu, make_signature(find_op("aten::tanh"), {an_operand()}, {floats({3})}));
  EXPECT_EQ(relu.op().name(), "aten::tanh");
  EXPECT_FALSE(relu.is_as_recorded()) << "its kernel has nothing to teach";
  EXPECT_THROW(
      graph.replace_signature(relu, make_signature(find_op("aten::exp"), {an_operand()}, {floats({4})})),
      c10::Error);
}

TEST(Graph, LayoutsOutliveTheNodesTheyCameFrom) {
  Graph graph = parse(
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::tanh(%0)  # Float[3] strides=[1]\n"
      "%2 = aten::clone(%1, None)  # Float[3] strides=[1]\n"
      "%3 = aten::relu_(%2)  # Float[3] strides=[1]\n"
      "return %3\n");
  graph.replace_uses(node_of(graph, 2).output(0), node_of(graph, 1).output(0));
  graph.erase(node_of(graph, 2));
  EXPECT_EQ(node_of(graph, 3).layout_of(0), floats({3}));
}

} // namespace
} // namespace lazyplug
