#include "lowering/ir/trace_slice.h"

#include "lowering/computation.h"
#include "lowering/ir/dump.h"
#include "lowering/ir/verify.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

// Two leaves; a sum, a product that nobody needs, and a write through a view.
struct SumProgram {
  SumProgram() {
    a = trace.add_device_data(at::ones({4}), floats({4}), {7, false});
    b = trace.add_device_data(at::full({4}, 2.0), floats({4}), {8, true});
    unneeded = add_mul(trace, {b}, {b}, floats({4}));
    sum = add_add(trace, {a}, {b}, floats({4}), 0.5);
    const Operand half = view_of(trace, sum, floats({2}));
    written = add_add_(trace, half, half, 2);
  }
  Trace trace;
  Value a, b, unneeded, sum, written;
};

TEST(TraceSlice, HasWhatItsRootsNeedAndNothingElse) {
  const SumProgram p;
  const TraceSlice slice = extract(p.trace, p.sum);
  verify(slice.trace, slice.roots);
  EXPECT_EQ(
      to_text(slice.trace, slice.roots),
      "%0 = device_data(0)  # Float[4] strides=[1]\n"
      "%1 = device_data(1)  # Float[4] strides=[1]\n"
      "%2 = aten::add.Tensor(%0, %1, 0.5)  # Float[4] strides=[1]\n"
      "return %2\n");
  EXPECT_EQ(slice.trace.all_scalars().size(), 1);
  EXPECT_TRUE(slice.trace.leaves()[1].is_same(p.trace.leaves()[1]));
  EXPECT_EQ(slice.trace.leaf_info(0).tensor_id, 7);
  EXPECT_TRUE(slice.trace.leaf_info(1).read_only);
}

TEST(TraceSlice, TellsWhichLeavesItHas) {
  const SumProgram p;
  EXPECT_EQ(extract(p.trace, {p.sum, p.a}).leaves, std::vector<uint32_t>({0, 1}));
  EXPECT_EQ(extract(p.trace, p.unneeded).leaves, std::vector<uint32_t>({1}));
}

TEST(TraceSlice, HashesLikeTheSameProgramRecordedAlone) {
  const SumProgram p;
  Trace alone;
  const Value a = add_leaf(alone, at::ones({4}));
  const Value b = add_leaf(alone, at::ones({4}));
  add_add(alone, {a}, {b}, floats({4}), 0.25);
  EXPECT_EQ(extract(p.trace, p.sum).trace.hash(), alone.hash());
}

TEST(TraceSlice, KeepsWritesAndTheIdentityOfOperands) {
  SumProgram p;
  TraceSlice slice = extract(p.trace, p.written);
  verify(slice.trace, slice.roots);
  const auto operands = slice.trace.operands(slice.trace.node(slice.roots[0].node));
  EXPECT_EQ(operands[0].view, operands[1].view);
  const auto outputs =
      compile(slice.trace, slice.roots)->run({slice.trace.leaves(), slice.trace.all_scalars()}).outputs;
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({6.0F, 6.0F, 2.0F, 2.0F}))) << outputs[0].tensor;
}

TEST(TraceSlice, CopyWithoutDataIsTheSameProgram) {
  const SumProgram p;
  const Trace copy = copy_without_data(p.trace);
  EXPECT_EQ(copy.hash(), p.trace.hash());
  EXPECT_EQ(copy.size(), p.trace.size());
  EXPECT_FALSE(copy.leaves()[0].defined());
  EXPECT_TRUE(copy.all_scalars()[0].isNone());
  EXPECT_EQ(copy.leaf_info(0).tensor_id, 7);
}

TEST(TraceSlice, MovingViewsStayWhereTheyAre) {
  Trace trace;
  const Value a = add_leaf(trace, at::tensor({1.0F, 2.0F, 4.0F, 8.0F}));
  trace.add_scalar(7);
  Geometry tail = floats({2});
  tail.offset = 2;
  const View* last = trace.own(tail, trace.add_scalar(2));
  const View* first = trace.own(floats({2}), trace.add_scalar(0));
  const Value sum = add_add(trace, {a, last}, {a, first}, floats({2}), 2);
  const Value other = add_add(trace, {a, last}, {a, trace.own(tail, last->offset_scalar)}, floats({2}), 1);
  const TraceSlice slice = extract(trace, {sum, other});
  EXPECT_EQ(slice.trace.all_scalars().size(), 4) << "two offsets and two numbers";
  const auto outputs =
      compile(slice.trace, slice.roots)->run({slice.trace.leaves(), slice.trace.all_scalars()}).outputs;
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({6.0F, 12.0F})));
  EXPECT_TRUE(at::equal(outputs[1].tensor, at::tensor({8.0F, 16.0F})));
  EXPECT_EQ(copy_without_data(slice.trace).hash(), slice.trace.hash());
}

TEST(TraceSlice, CopyWithoutDataKeepsTheLengthOfLists) {
  Trace trace;
  const Value leaf = trace.add_device_data(at::ones({2}), floats({2}));
  const auto signature = make_signature(make_op("aten::relu"), {an_operand()}, {floats({2})});
  const c10::List<at::Scalar> numbers({at::Scalar(1.5), at::Scalar(2)});
  trace.add_call(signature, Operand{leaf}, {numbers, std::vector<int64_t>{3, 4, 5}}, 0, nullptr);
  const std::vector<c10::IValue> scalars = copy_without_data(trace).all_scalars();
  EXPECT_EQ(scalars[0].toListRef().size(), 2);
  EXPECT_FALSE(scalars[0].isIntList());
  EXPECT_EQ(scalars[1].toIntVector(), (std::vector<int64_t>{0, 0, 0}));
}

TEST(TraceSlice, RootsAreDistinctAndReadThroughViews) {
  const SumProgram p;
  TraceSlice slice = extract(p.trace, p.sum);
  const Value sum = slice.roots[0];
  slice.roots.clear();
  Geometry tail = floats({2});
  tail.offset = 2;
  for (const Geometry& geometry : {floats({4}), floats({4}), tail}) {
    add_root(slice, sum, geometry);
  }
  verify(slice.trace, slice.roots);
  EXPECT_EQ(slice.roots[0], sum);
  EXPECT_EQ(slice.trace.operands(slice.trace.node(slice.roots[1].node))[0].view, nullptr);
  const auto outputs =
      compile(slice.trace, slice.roots)->run({slice.trace.leaves(), slice.trace.all_scalars()}).outputs;
  EXPECT_TRUE(outputs[0].tensor.is_alias_of(outputs[1].tensor));
  EXPECT_EQ(outputs[2].tensor.storage_offset(), 2);
  EXPECT_TRUE(at::equal(outputs[2].tensor, at::full({2}, 2.0)));
}

TEST(TraceSlice, InputsLieAsTheFirstRootThatCoversThem) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2, 2}).t());
  const Value b = add_leaf(trace, at::ones({4}));
  const Value written = add_add_(trace, view_of(trace, a, floats({2})), view_of(trace, b, floats({1})));
  TraceSlice slice = extract(trace, {written, b});
  const std::vector<Value> values = slice.roots;
  slice.roots.clear();
  add_root(slice, values[1], floats({2}));
  add_root(slice, values[0], floats({2, 2}));
  add_root(slice, values[0], geometry_of(at::ones({2, 2}).t()));
  const auto geometries = input_geometries(slice.trace, slice.roots);
  EXPECT_EQ(geometries[0], floats({2, 2}));
  EXPECT_EQ(geometries[1], floats({4})) << "no root covers it";
}

} // namespace
} // namespace lazyplug
