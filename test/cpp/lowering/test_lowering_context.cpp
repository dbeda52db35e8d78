#include "lowering/lowering_context.h"

#include "lowering/execution/torchscript_computation.h"
#include "lowering/execution/verify_torchscript.h"
#include "lowering/nodes/node_attributes.h"
#include "lowering/passes/dead_code.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

namespace lazyplug {
namespace {

std::shared_ptr<torch::jit::Graph> lower(const Trace& trace, c10::ArrayRef<Value> roots) {
  Graph graph(trace, roots);
  remove_dead_code(graph);
  return LoweringContext(graph).lower().graph;
}

std::string lowered_text(const Trace& trace, c10::ArrayRef<Value> roots) {
  return lazyplug::text_of(*lower(trace, roots));
}

// What the nodes of a lowered graph are, without the constants.
std::vector<std::string> kinds_of(const Trace& trace, c10::ArrayRef<Value> roots) {
  std::vector<std::string> kinds;
  const auto lowered = lower(trace, roots);
  for (const auto* node : lowered->nodes()) {
    if (node->kind() != torch::jit::prim::Constant) {
      kinds.emplace_back(node->kind().toQualString());
    }
  }
  return kinds;
}

// The leaves as copies that nobody else holds, so that a run may overwrite them.
ComputationInputs private_inputs(const Trace& trace) {
  ComputationInputs inputs{{}, trace.all_scalars()};
  for (const at::Tensor& leaf : trace.leaves()) {
    inputs.leaves.push_back(leaf.clone());
  }
  return inputs;
}

const OpInfo& find_registered(const OpKey& key) {
  return make_op(key.base.toQualString(), key.overload.c_str());
}

void expect_results(const std::vector<ComputationOutput>& outputs, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_FALSE(outputs[i].error) << i;
    EXPECT_EQ(outputs[i].tensor.dtype(), expected[i].dtype());
    EXPECT_TRUE(at::equal(outputs[i].tensor, expected[i]))
        << i << ": " << outputs[i].tensor << " is not " << expected[i];
  }
}

// Here, on TorchScript's interpreter, and here again after it has been text.
void expect_all_give(const Trace& trace, c10::ArrayRef<Value> roots, const std::vector<at::Tensor>& expected) {
  const auto ours = compile(trace, roots)->run(private_inputs(trace)).outputs;
  expect_results(ours, expected);
  const std::string text = lowered_text(trace, roots);
  verify_torchscript(text, private_inputs(trace), ours);
  const auto read_back = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, read_back.get());
  EXPECT_EQ(lazyplug::text_of(*read_back), text);
  const TorchScriptComputation again(read_back, find_registered);
  expect_results(again.run(private_inputs(trace)).outputs, expected);
}

class Lowering : public testing::Test {
 protected:
  Trace trace;
  const at::Tensor a_data = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor b_data = at::arange(3, at::kFloat) - 1;
  const Value a = add_leaf(trace, a_data);
  const Value b = add_leaf(trace, b_data);
  const ScopedFlag<int64_t> no_groups_of_one{config().fusion, 1};
};

TEST_F(Lowering, InputsAreLeavesThenScalars) {
  add_add(trace, {a}, {b}, floats({2, 3}), 0.5);
  add_leaf(trace, b_data);
  add_add(trace, {a}, {b}, floats({2, 3}), 2);
  const auto graph = lower(trace, {});
  ASSERT_EQ(graph->inputs().size(), 5);
  EXPECT_EQ(geometry_of(*graph->inputs()[2]->type()), floats({3}));
  EXPECT_EQ(*graph->inputs()[3]->type(), *c10::FloatType::get());
  EXPECT_EQ(*graph->inputs()[4]->type(), *c10::IntType::get());
}

TEST_F(Lowering, GraphIsPlainTorchScript) {
  const Value sum = add_add(trace, {a}, {b}, floats({2, 3}), 0.5);
  const Value result = add_simple(trace, make_op("aten::cosh"), {{sum}}, floats({2, 3}));
  EXPECT_EQ(
      lowered_text(trace, result),
      "graph(%0 : Float(2, 3, strides=[3, 1]),\n"
      "      %1 : Float(3, strides=[1]),\n"
      "      %2 : float):\n"
      "  %3 : Float(2, 3, strides=[3, 1]) = aten::add[origin=2, overload=\"Tensor\"](%0, %1, %2)\n"
      "  %4 : Float(2, 3, strides=[3, 1]) = aten::cosh[origin=3](%3)\n"
      "  return (%4)\n");
  expect_all_give(trace, {result, sum}, {(a_data + b_data * 0.5).cosh(), a_data + b_data * 0.5});
}

TEST_F(Lowering, NeighbouringPointwiseCallsAreOneNode) {
  const Value sum = add_add(trace, {a}, {b}, floats({2, 3}), 1);
  const Value result = add_relu(trace, {sum}, floats({2, 3}));
  EXPECT_NE(
      lowered_text(trace, result)
          .find(
              "  %3 : Float(2, 3, strides=[3, 1]) = lazyplug::pointwise[origin=3, program=\"f32 memory 3 slots 4 "
              "numbers "
              "1 3 = add 0 1 0 ; 2 = relu 3 ;\", layout=\"2 3;3 1\", dtypes=\"6\", places=\"0 3 1;0 0 1\", depends=\"0 "
              "1\", old=\"-1\", made_by=\"3 1\", "
              "ops=[\"aten::add.Tensor\", \"aten::relu\"]](%0, %1, %2)"),
      std::string::npos);
  expect_all_give(trace, {result, sum}, {(a_data + b_data).relu(), a_data + b_data});
}

TEST_F(Lowering, NodesSayWhereTheyComeFromAndWhatTheyWrite) {
  const Value changed = add_add_(trace, view_of(trace, a, floats({3})), {b});
  const auto graph = lower(trace, changed);
  std::vector<const torch::jit::Node*> nodes;
  for (const auto* node : graph->nodes()) {
    if (node->kind() != torch::jit::prim::Constant) {
      EXPECT_EQ(origin_of(*node), changed.node) << *node;
      EXPECT_FALSE(is_replaced(*node)) << *node;
      nodes.push_back(node);
    }
  }
  ASSERT_EQ(nodes.size(), 3) << "own, strided_view, add_";
  EXPECT_TRUE(written_values(*nodes[0]).empty());
  EXPECT_TRUE(written_values(*nodes[1]).empty());
  EXPECT_EQ(nodes[2]->kind().toQualString(), std::string("aten::add_"));
  EXPECT_EQ(overload_of(*nodes[2]), "Tensor");
  EXPECT_EQ(written_values(*nodes[2]), std::vector<const torch::jit::Value*>{nodes[0]->output()}) << "through the view";
}

TEST_F(Lowering, TypesAreLayouts) {
  const Value sum = add_add(trace, view_of(trace, a, geometry_of(a_data.t())), {b}, floats({3, 2}));
  const Value changed = add_add_(trace, {a}, {b});
  const auto graph = lower(trace, {sum, changed});
  const auto layout_of_output = [&](size_t i) { return geometry_of(*graph->outputs()[i]->type()); };
  EXPECT_EQ(geometry_of(*graph->inputs()[0]->type()), floats({2, 3}));
  EXPECT_EQ(layout_of_output(0), floats({3, 2}));
  EXPECT_EQ(layout_of_output(1), floats({2, 3})) << "what the call has written";
}

TEST_F(Lowering, WhatNoRootNeedsIsLeftOut) {
  add_relu(trace, {a}, floats({2, 3}));
  const Value result = add_relu(trace, {b}, floats({3}));
  EXPECT_EQ(kinds_of(trace, result), std::vector<std::string>{"aten::relu"});
  EXPECT_EQ(compile(trace, result)->num_ops(), 1);
  EXPECT_EQ(lower(trace, result)->inputs().size(), 2) << "all leaves are inputs";
}

TEST_F(Lowering, ViewsAreOneNodeOverTheirBase) {
  const Value row = add_relu(trace, view_of(trace, a, geometry_of(a_data.select(0, 1))), floats({3}));
  const Value transposed = add_relu(trace, view_of(trace, a, geometry_of(a_data.t())), floats({3, 2}));
  EXPECT_EQ(
      kinds_of(trace, {row, transposed}),
      (std::vector<std::string>{"lazyplug::strided_view", "aten::relu", "lazyplug::strided_view", "aten::relu"}));
  expect_all_give(trace, {row, transposed}, {a_data.select(0, 1), a_data.t()});
}

TEST_F(Lowering, ViewsReadAnotherTypeAndBits) {
  Geometry negative = geometry_of(a_data);
  negative.neg = true;
  const Geometry ints = Geometry::contiguous(at::kInt, {3});
  const Value product = add_mul(trace, view_of(trace, a, negative), {b}, floats({2, 3}));
  const Value bits = add_mul(trace, view_of(trace, b, ints), view_of(trace, b, ints), ints);
  expect_all_give(trace, {product, bits}, {-a_data * b_data, b_data.view(at::kInt) * b_data.view(at::kInt)});
}

TEST_F(Lowering, MutationIsTheOpOnAPrivateCopy) {
  const Value changed = add_add_(trace, {a}, {b}, 2);
  EXPECT_EQ(kinds_of(trace, changed), (std::vector<std::string>{"lazyplug::own", "aten::add_"}));
  expect_all_give(trace, changed, {a_data + 2 * b_data});
}

TEST_F(Lowering, MutationThroughAViewChangesTheWholeValue) {
  const Value changed = add_add_(trace, view_of(trace, a, geometry_of(a_data.select(0, 1))), {b});
  at::Tensor expected = a_data.clone();
  expected.select(0, 1).add_(b_data);
  expect_all_give(trace, changed, {expected});
}

TEST_F(Lowering, MutationThatReadsItsOwnMemorySeesOneMemory) {
  const Geometry top = geometry_of(a_data.select(0, 0));
  const Geometry bottom = geometry_of(a_data.select(0, 1));
  const Value once = add_add_(trace, view_of(trace, a, top), view_of(trace, a, bottom));
  const Value twice = add_add_(trace, {once}, {once});
  at::Tensor expected = a_data.clone();
  expected.select(0, 0).add_(expected.select(0, 1));
  expect_all_give(trace, twice, {expected * 2});
}

TEST_F(Lowering, ReadsBeforeAMutationSeeTheOldValue) {
  const Value before = add_relu(trace, {a}, floats({2, 3}));
  const Value changed = add_add_(trace, {a}, {b});
  const Value after = add_relu(trace, {changed}, floats({2, 3}));
  expect_all_give(trace, {before, after}, {a_data, (a_data + b_data).relu()});
}

TEST_F(Lowering, OutArgumentsAreMutated) {
  const Value out = trace.add_empty(floats({2, 3}));
  static const OpInfo& op = make_op("aten::mul", "out");
  const auto signature = make_signature(op, {an_operand(), an_operand(), an_operand()}, {}, {false, false, true});
  const Value result{trace.add_call(signature, {{a}, {b}, {out}}, {}, 1, nullptr), 0};
  EXPECT_EQ(kinds_of(trace, result), (std::vector<std::string>{"lazyplug::empty", "lazyplug::own", "aten::mul"}));
  expect_all_give(trace, result, {a_data * b_data});
}

TEST_F(Lowering, HiddenWritesAreMutations) {
  const Value mean = add_leaf(trace, at::zeros({3}));
  const Value variance = add_leaf(trace, at::ones({3}));
  static const OpInfo& op = make_op("aten::native_batch_norm");
  const auto signature = make_signature(
      op,
      {an_operand(), an_operand(), an_operand(), an_operand(), an_operand(), a_constant(true), a_scalar(), a_scalar()},
      {floats({2, 3}), floats({3}), floats({3})},
      {false, false, false, true, true});
  const NodeId node =
      trace.add_call(signature, {{a}, {}, {}, {mean}, {variance}}, {c10::IValue(0.1), c10::IValue(1e-5)}, 2, nullptr);
  at::Tensor expected_mean = at::zeros({3});
  at::Tensor expected_variance = at::ones({3});
  const auto expected = at::native_batch_norm(a_data, {}, {}, expected_mean, expected_variance, true, 0.1, 1e-5);
  expect_all_give(trace, {{node, 0}, {node, 3}, {node, 4}}, {std::get<0>(expected), expected_mean, expected_variance});
}

TEST_F(Lowering, ListsOfTensors) {
  static const OpInfo& cat = make_op("aten::cat");
  const auto signature = make_signature(cat, {a_list(2), a_constant(0)}, {floats({3, 3})});
  const Operand row = view_of(trace, b, floats({1, 3}));
  const Value joined{trace.add_call(signature, {{a}, row}, {}, 0, nullptr), 0};
  EXPECT_EQ(kinds_of(trace, joined)[1], "prim::ListConstruct");
  expect_all_give(trace, joined, {at::cat({a_data, b_data.view({1, 3})})});
}

TEST_F(Lowering, ListsOfOptionalTensors) {
  const at::Tensor index_data = at::tensor({2, 0});
  const Value index = add_leaf(trace, index_data);
  static const OpInfo& op = make_op("aten::index", "Tensor");
  const auto signature = make_signature(op, {an_operand(), a_list(2)}, {floats({2, 2})});
  const Value result{trace.add_call(signature, {{a}, {}, {index}}, {}, 0, nullptr), 0};
  expect_all_give(trace, result, {a_data.index_select(1, index_data)});
}

TEST_F(Lowering, ListsAsResults) {
  static const OpInfo& op = make_op("aten::split_with_sizes_copy");
  const auto signature = make_signature(
      op,
      {an_operand(), a_constant(std::vector<int64_t>{1, 2}), a_constant(1)},
      {floats({2, 1}), floats({2, 2})});
  const NodeId split = trace.add_call(signature, Operand{a}, {}, 0, nullptr);
  EXPECT_EQ(kinds_of(trace, Value{split, 1})[1], "prim::ListUnpack");
  expect_all_give(trace, {{split, 1}, {split, 0}}, {a_data.slice(1, 1), a_data.slice(1, 0, 1)});
}

TEST_F(Lowering, SeveralResults) {
  static const OpInfo& sort = make_op("aten::sort");
  const auto signature = make_signature(
      sort,
      {an_operand(), a_constant(-1), a_constant(true)},
      {floats({3}), Geometry::contiguous(at::kLong, {3})});
  const NodeId node = trace.add_call(signature, Operand{b}, {}, 0, nullptr);
  const auto [values, indices] = b_data.sort(-1, /*descending=*/true);
  expect_all_give(trace, {{node, 1}, {node, 0}}, {indices, values});
}

TEST_F(Lowering, GeneratorsAreMadeFromASeedThatIsAnInput) {
  static const OpInfo& op = make_op("aten::uniform_");
  const auto signature = make_signature(op, {an_operand(), a_scalar(), a_scalar(), a_seed()}, {}, {true});
  const auto draw = [&](Value from, int64_t seed) {
    return Value{
        trace.add_call(signature, Operand{from}, {c10::IValue(0.0), c10::IValue(1.0), c10::IValue(seed)}, 1, nullptr),
        0};
  };
  const Value first = draw(trace.add_empty(floats({8})), 1);
  const Value again = draw(trace.add_empty(floats({8})), 1);
  const Value other = draw(trace.add_empty(floats({8})), 2);
  const std::vector<Value> roots = {first, again, other};
  std::vector<at::Tensor> results;
  for (const ComputationOutput& output : compile(trace, roots)->run(private_inputs(trace)).outputs) {
    results.push_back(output.tensor);
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_FALSE(at::equal(results[0], results[2]));
  expect_all_give(trace, roots, results);
}

TEST_F(Lowering, ConstantsAndComplexScalars) {
  const Value sum =
      add_add(trace, {a}, {a}, Geometry::contiguous(at::kComplexFloat, {2, 3}), c10::complex<double>(0, 1));
  EXPECT_NE(lowered_text(trace, sum).find(": complex"), std::string::npos);
  static const OpInfo& op = make_op("aten::sum", "dim_IntList");
  const auto signature = make_signature(
      op,
      {an_operand(),
       a_constant(std::vector<int64_t>{1}),
       a_constant(false),
       a_constant(static_cast<int64_t>(at::kDouble))},
      {Geometry::contiguous(at::kDouble, {2})});
  const Value reduced{trace.add_call(signature, Operand{a}, {}, 0, nullptr), 0};
  expect_all_give(trace, reduced, {a_data.sum(1, false, at::kDouble)});
}

TEST_F(Lowering, BoolScalarsFindAnOverload) {
  const Value memory = trace.add_empty(Geometry::contiguous(at::kBool, {2}));
  static const OpInfo& fill = make_op("aten::fill_", "Scalar");
  const auto signature = make_signature(fill, {an_operand(), a_scalar()}, {}, {true});
  const Value filled{trace.add_call(signature, Operand{memory}, c10::IValue(true), 1, nullptr), 0};
  expect_all_give(trace, filled, {at::ones({2}, at::kBool)});
}

TEST_F(Lowering, LeavesMayBeRoots) {
  expect_all_give(trace, {b, a}, {b_data, a_data});
}

} // namespace
} // namespace lazyplug
