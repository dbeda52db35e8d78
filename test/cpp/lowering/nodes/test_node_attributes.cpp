#include "lowering/nodes/node_attributes.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

namespace lazyplug {
namespace {

using torch::jit::Node;

std::shared_ptr<torch::jit::Graph> parse(const std::string& text) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

std::vector<const Node*> nodes_of(const torch::jit::Graph& graph) {
  const auto nodes = graph.nodes();
  return {nodes.begin(), nodes.end()};
}

TEST(NodeAttributes, SurviveTheText) {
  torch::jit::Graph graph;
  auto* node = graph.insertNode(graph.create(c10::Symbol::fromQualString("aten::add"), {graph.addInput()}));
  set_origin(*node, 7, /*is_replaced=*/true);
  set_overload(*node, "Tensor");
  set_work(*node, 1234.5F);
  set_ops(*node, {"aten::a", "aten::b.c"});
  const auto again = parse(graph.toString());
  const Node& copy = **again->nodes().begin();
  EXPECT_EQ(origin_of(copy), 7);
  EXPECT_TRUE(is_replaced(copy));
  EXPECT_EQ(overload_of(copy), "Tensor");
  EXPECT_EQ(work_of(copy), 1234.5F);
  EXPECT_EQ(ops_of(copy), (std::vector<std::string>{"aten::a", "aten::b.c"}));
}

TEST(NodeAttributes, WhatIsUsualIsLeftOut) {
  torch::jit::Graph graph;
  auto* node = graph.insertNode(graph.create(c10::Symbol::fromQualString("aten::relu"), {graph.addInput()}));
  set_origin(*node, 0, /*is_replaced=*/false);
  set_overload(*node, "");
  set_work(*node, 0);
  set_writes(*node, {});
  EXPECT_EQ(node->attributeNames().size(), 1);
  EXPECT_FALSE(is_replaced(*node));
  EXPECT_EQ(overload_of(*node), "");
  EXPECT_EQ(work_of(*node), 0);
  EXPECT_TRUE(written_values(*node).empty());
}

TEST(NodeAttributes, WrittenValuesAreThoseOwnedForTheCall) {
  const auto graph = parse(R"(
graph(%a : Float(2, strides=[1]), %b : Float(2, strides=[1])):
  %n : int[] = prim::Constant[value=[2]]()
  %s : int[] = prim::Constant[value=[1]]()
  %old : Float(2, strides=[1]) = lazyplug::own[origin=1](%a, %n, %s)
  %new : Float(2, strides=[1]) = lazyplug::own[origin=2](%b, %n, %s)
  %view : Float(2, strides=[1]) = lazyplug::strided_view[origin=2](%new, %n, %s)
  %list : Tensor[] = prim::ListConstruct[origin=2](%old, %a, %view)
  %out : Tensor = aten::all[origin=2, writes=[0, 1]](%list, %new, %old)
  return (%out)
)");
  const auto nodes = nodes_of(*graph);
  EXPECT_EQ(written_values(*nodes.back()), std::vector<const torch::jit::Value*>{nodes[3]->output()});
}

TEST(NodeAttributes, NodesWithoutOutputsAreReadBack) {
  torch::jit::Graph graph;
  auto* input = graph.addInput();
  for (int i = 0; i < 2; ++i) {
    graph.insertNode(graph.create(c10::Symbol::fromQualString("aten::_foreach_neg_"), {input}, /*num_outputs=*/0));
  }
  graph.registerOutput(input);
  const std::string text = text_of(graph);
  const auto again = parse(text);
  EXPECT_EQ(nodes_of(*again).size(), 2);
  EXPECT_EQ(text_of(*again), text);
}

TEST(LayoutTypes, AreThoseOfTheGeometry) {
  Geometry expanded = floats({2, 3});
  expanded.strides = {0, 1};
  Geometry gaps = Geometry::contiguous(at::kBFloat16, {2, 1, 3});
  gaps.strides = {40, 7, 2};
  for (const Geometry& geometry : {floats({2, 3}), floats({}), floats({0, 4}), expanded, gaps}) {
    EXPECT_EQ(geometry_of(*type_of(geometry)), geometry) << to_string(geometry);
    torch::jit::Graph graph;
    graph.registerOutput(graph.addInput()->setType(type_of(geometry)));
    EXPECT_EQ(geometry_of(*parse(graph.toString())->inputs()[0]->type()), geometry) << to_string(geometry);
  }
  EXPECT_FALSE(geometry_of(*c10::TensorType::get()));
  EXPECT_FALSE(geometry_of(*c10::ListType::ofTensors()));
}

TEST(TypeGeometries, AreMadeOnce) {
  TypeGeometries geometries;
  const auto type = type_of(floats({2, 3}));
  const Geometry* geometry = geometries.find(*type);
  EXPECT_EQ(*geometry, floats({2, 3}));
  EXPECT_EQ(geometries.find(*type), geometry);
  EXPECT_EQ(geometries.find(*c10::TensorType::get()), nullptr);
}

} // namespace
} // namespace lazyplug
