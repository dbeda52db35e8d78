#include "lowering/fusion/foreach_group.h"

#include "common/config.h"
#include "lowering/fusion/pointwise_ops.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

class ForeachGroups : public testing::Test {
 protected:
  using Values = std::vector<GraphValue>;

  // The call on values of equal layouts, or on views of these; returns what it writes or makes.
  Values call(
      const char* name,
      const char* overload,
      std::vector<Values> lists,
      std::vector<c10::IValue> scalars,
      const Geometry& layout,
      std::optional<Geometry> promised = {},
      const View* view = nullptr) {
    const OpInfo& op = make_op(name, overload);
    const bool writes = op.writes();
    std::vector<ArgBinding> args;
    std::vector<GraphOperand> operands;
    for (const Values& list : lists) {
      args.push_back(a_list(list.size()));
      for (GraphValue value : list) {
        operands.push_back({value, view, static_cast<uint32_t>(operands.size())});
      }
    }
    args.insert(args.end(), scalars.size(), a_scalar());
    const size_t num_rows = lists[0].size();
    std::vector<bool> written(writes ? operands.size() : 0);
    std::fill_n(written.begin(), writes ? num_rows : 0, true);
    auto signature = c10::make_intrusive<Signature>(
        *make_signature(op, args, std::vector<Geometry>(writes ? 0 : num_rows, promised.value_or(layout)), written));
    signature->operands.assign(operands.size(), layout);
    std::vector<uint32_t> numbers;
    for (const c10::IValue& scalar : scalars) {
      numbers.push_back(graph.add_scalar(scalar));
    }
    last = &graph.add_call(next_id++, signature, operands, numbers, nullptr);
    Values results;
    for (uint32_t i = 0; i < num_rows; ++i) {
      results.push_back(last->output(i));
    }
    return results;
  }

  Values leaves(size_t n) {
    return leaves(n, row);
  }
  Values leaves(size_t n, const Geometry& layout) {
    Values values;
    for (size_t i = 0; i < n; ++i) {
      values.push_back(graph.add_leaf(next_id++, &layout).output(0));
    }
    return values;
  }

  const View row{floats({4})};
  const Geometry doubles = Geometry::contiguous(at::kDouble, {4});
  Graph graph;
  NodeId next_id = 0;
  GraphNode* last = nullptr;
};

TEST_F(ForeachGroups, AnOptimizersCallsAreOneProgram) {
  const Values moments = leaves(3);
  const Values gradients = leaves(3);
  const Values parameters = leaves(3);
  ForeachGroup group(graph);
  const Values updated = call("aten::_foreach_addcmul_", "Scalar", {moments, gradients, gradients}, {0.1}, row);
  EXPECT_TRUE(group.add(*last));
  const Values roots = call("aten::_foreach_sqrt", "", {updated}, {}, row);
  EXPECT_TRUE(group.add(*last));
  const c10::List<double> steps({1.0, 2.0, 3.0});
  c10::impl::GenericList numbers(c10::NumberType::get());
  for (double step : steps) {
    numbers.push_back(step);
  }
  call("aten::_foreach_addcdiv_", "ScalarList", {parameters, gradients, roots}, {numbers}, row);
  EXPECT_TRUE(group.add(*last));
  ASSERT_EQ(group.lists().size(), 4);
  EXPECT_EQ(group.num_rows(), 3);
  EXPECT_EQ(group.lists()[0].first, moments);
  EXPECT_EQ(group.lists()[0].last, updated);
  EXPECT_FALSE(group.lists()[1].is_written);
  EXPECT_TRUE(group.lists()[2].is_fresh());
  EXPECT_EQ(group.lists()[3].first, parameters);
  EXPECT_EQ(group.num_reads(gradients[1]), 3);
  EXPECT_EQ(
      kernels::to_string(group.program({0, 1, 3})),
      std::string("f32 memory 3 slots 4 numbers 2 0 = addcmul 0 1 1 0 ; 3 = ") +
          (computes_functions() ? "sqrt_exact" : "sqrt") + " 0 ; 2 = addcdiv 2 1 3 1 ;");
}

TEST_F(ForeachGroups, SquareRootsAreOurOwnInFloat32IfFunctionsAre) {
  const int64_t before = config().fusion.get();
  const auto program_on = [this](const Geometry& layout) {
    ForeachGroup group(graph);
    call("aten::_foreach_sqrt", "", {leaves(2, layout)}, {}, layout);
    EXPECT_TRUE(group.add(*last));
    return kernels::to_string(group.program({0, 1}));
  };
  const bool has_functions = find_function(make_op("aten::_foreach_sqrt"), {}) != nullptr;
  for (const int64_t fusion : {1, 3}) {
    config().fusion.set(fusion);
    const std::string name = fusion == 3 && has_functions ? "sqrt_exact" : "sqrt";
    EXPECT_EQ(program_on(row), "f32 memory 2 slots 2 numbers 0 1 = " + name + " 0 ;");
    EXPECT_EQ(program_on(doubles), "f64 memory 2 slots 2 numbers 0 1 = sqrt 0 ;");
  }
  config().fusion.set(before);
}

TEST_F(ForeachGroups, SingleNumbersComeBeforeLists) {
  const Values x = leaves(2);
  c10::impl::GenericList numbers(c10::NumberType::get());
  numbers.push_back(1.0);
  numbers.push_back(int64_t{2});
  ForeachGroup group(graph);
  const Values y = call("aten::_foreach_add_", "ScalarList", {x}, {numbers}, row);
  EXPECT_TRUE(group.add(*last));
  call("aten::_foreach_mul_", "Scalar", {y}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  EXPECT_EQ(
      kernels::to_string(group.program({0})),
      "f32 memory 1 slots 1 numbers 2 0 = add_number 0 1 ; 0 = mul_number 0 0 ;");
}

TEST_F(ForeachGroups, CallsThatDoNotFitLeaveTheGroupAsItIs) {
  const Values x = leaves(2);
  ForeachGroup group(graph);
  const Values y = call("aten::_foreach_mul_", "Scalar", {x}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  const auto refuses = [&](const char* why) {
    const std::string before = kernels::to_string(group.program({0}));
    EXPECT_FALSE(group.add(*last)) << why;
    EXPECT_EQ(kernels::to_string(group.program({0})), before) << why;
  };
  call("aten::_foreach_mul_", "Scalar", {leaves(3)}, {3.0}, row);
  refuses("other rows");
  call("aten::_foreach_mul_", "Scalar", {{y[1], y[0]}}, {3.0}, row);
  refuses("in other places");
  call("aten::_foreach_add_", "List", {y, {y[0], leaves(1)[0]}}, {1.0}, row);
  refuses("one of another list");
  call("aten::_foreach_mul_", "Scalar", {y}, {c10::complex<double>(1, 2)}, row);
  refuses("a complex number");
  call("aten::_foreach_exp_", "", {y}, {}, row);
  refuses("an op with its own rounding");
  call("aten::_foreach_mul_", "Scalar", {leaves(2)}, {3.0}, floats({5}));
  refuses("another layout");
  const auto relu = make_signature(make_op("aten::relu"), {an_operand()}, {row});
  last = &graph.add_call(next_id++, relu, GraphOperand{y[0]}, {}, nullptr);
  refuses("no call on lists");
}

TEST_F(ForeachGroups, OldValuesThatOthersNeedAreNotWrittenOver) {
  const Values x = leaves(2);
  ForeachGroup group(graph);
  const Values y = call("aten::_foreach_mul", "Scalar", {x}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  graph.add_root(x[0]);
  call("aten::_foreach_mul_", "Scalar", {x}, {3.0}, row);
  EXPECT_TRUE(group.add(*last)) << "the memory of what comes from elsewhere is copied";
  const Values z = call("aten::_foreach_mul_", "Scalar", {y}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  graph.add_root(z[1]);
  call("aten::_foreach_mul_", "Scalar", {z}, {3.0}, row);
  EXPECT_FALSE(group.add(*last));
}

TEST_F(ForeachGroups, WhatIsNewMustLieAsItIsPromised) {
  ForeachGroup group(graph);
  const Geometry weight = geometry_of(at::ones({2, 1, 2, 2}));
  call("aten::_foreach_sqrt", "", {leaves(2)}, {}, weight);
  EXPECT_TRUE(group.add(*last));
  const Geometry promised = geometry_of(at::ones({2, 2, 2, 1}).permute({0, 3, 1, 2}));
  EXPECT_TRUE(promised.same_memory(weight.sizes, weight.strides));
  const Values x = leaves(2);
  call("aten::_foreach_sqrt", "", {x}, {}, weight, promised);
  EXPECT_FALSE(group.add(*last));
}

// Else a function alone would have the bits of the CPU's where a graph is computed without the package's kernels.
TEST_F(ForeachGroups, ViewsAreListsOfTheirOwnThatAreOnlyRead) {
  const Values x = leaves(2);
  ForeachGroup group(graph);
  const Values roots = call("aten::_foreach_sqrt", "", {x}, {}, row, {}, &row);
  EXPECT_TRUE(group.add(*last));
  EXPECT_EQ(group.lists()[0].first, x);
  EXPECT_EQ(group.lists()[0].views.size(), 2);
  call("aten::_foreach_mul_", "Scalar", {roots}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  EXPECT_EQ(group.lists().size(), 2);
  call("aten::_foreach_mul_", "Scalar", {x}, {3.0}, row, {}, &row);
  EXPECT_FALSE(group.add(*last)) << "what is written is a whole";
  const Values written = call("aten::_foreach_mul_", "Scalar", {leaves(2)}, {3.0}, row);
  EXPECT_TRUE(group.add(*last));
  call("aten::_foreach_sqrt", "", {written}, {}, row, {}, &row);
  EXPECT_FALSE(group.add(*last)) << "the group has yet to make them";
}

TEST_F(ForeachGroups, EachStepOnNarrowFloatsIsRounded) {
  const Geometry narrow = Geometry::contiguous(at::kHalf, {4});
  const Values x = leaves(2, narrow);
  ForeachGroup group(graph);
  const Values y = call("aten::_foreach_mul_", "Scalar", {x}, {3.0}, narrow);
  EXPECT_TRUE(group.add(*last));
  const Values roots = call("aten::_foreach_sqrt", "", {y}, {}, narrow);
  EXPECT_TRUE(group.add(*last));
  call("aten::_foreach_neg_", "", {roots}, {}, narrow);
  EXPECT_TRUE(group.add(*last));
  EXPECT_EQ(
      kernels::to_string(group.program({0, 1})),
      "f32 memory 2 slots 2 numbers 1 0 = mul_number 0 0 ; 0 = to_half 0 ; 1 = sqrt_exact 0 ; 1 = to_half 1 ; "
      "1 = neg 1 ;");
  call("aten::_foreach_add_", "List", {y, roots}, {1.0}, narrow);
  EXPECT_FALSE(group.add(*last)) << "sums with a multiple are rounded by place";
  call("aten::_foreach_copy_", "", {y, leaves(2, narrow)}, {}, narrow);
  EXPECT_FALSE(group.add(*last)) << "copies are not rounded";
}

TEST_F(ForeachGroups, LayoutsWithGapsAndOtherDtypesAreNotForTiles) {
  for (const at::Tensor& example :
       {at::ones({4, 2}).select(1, 0), at::ones({4}, at::kInt), at::ones({1}).expand({4})}) {
    ForeachGroup group(graph);
    call("aten::_foreach_mul_", "Scalar", {leaves(2)}, {3.0}, geometry_of(example));
    EXPECT_FALSE(group.add(*last)) << example;
  }
}

} // namespace
} // namespace lazyplug
