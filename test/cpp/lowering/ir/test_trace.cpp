#include "lowering/ir/trace.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(Trace, LeafKeepsDataAndLayout) {
  Trace trace;
  EXPECT_TRUE(trace.empty());
  const at::Tensor data = at::ones({2, 3});
  const Value leaf = add_leaf(trace, data);
  const Value second = add_leaf(trace, at::ones({4}));
  EXPECT_EQ(trace.node(leaf.node).kind, NodeKind::kDeviceData);
  EXPECT_EQ(trace.node(second.node).leaf_index, 1);
  EXPECT_EQ(trace.layout(leaf), floats({2, 3}));
  EXPECT_TRUE(trace.leaves()[0].is_same(data));
  EXPECT_EQ(trace.size(), 2);
}

TEST(Trace, CallKeepsOperandsScalarsAndLocation) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Value sum = add_add(trace, {a}, view_of(trace, a, floats({1})), floats({2}), 0.5);
  static const OpInfo& relu = make_op("aten::relu");
  const auto signature = make_signature(relu, {an_operand()}, {floats({2})});
  const NodeId call = trace.add_call(signature, Operand{sum}, {}, 0, "model.py:7");
  const auto operands = trace.operands(trace.node(sum.node));
  ASSERT_EQ(operands.size(), 2);
  EXPECT_EQ(operands[0].value, a);
  EXPECT_EQ(operands[0].view, nullptr);
  EXPECT_EQ(*operands[1].view, floats({1}));
  EXPECT_EQ(trace.scalars(trace.node(sum.node)).front().toDouble(), 0.5);
  EXPECT_EQ(trace.operands(trace.node(call)).front().value, sum);
  EXPECT_TRUE(trace.scalars(trace.node(call)).empty());
  EXPECT_STREQ(trace.node(call).location, "model.py:7");
}

TEST(Trace, WrittenValuesAreDistinctAndInOrderOfOperands) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Value b = add_leaf(trace, at::ones({3}));
  static const OpInfo& op = make_op("aten::_foreach_add_", "Scalar");
  const auto signature = make_signature(op, {a_list(4), a_scalar()}, {}, {true, true, true, true});
  const NodeId call = trace.add_call(signature, {{b}, {}, {a}, {b}}, c10::IValue(1), 2, nullptr);
  EXPECT_EQ(trace.written_values(trace.node(call)), std::vector<Value>({b, a}));
  EXPECT_EQ(trace.node(call).num_outputs, 2);
  EXPECT_EQ(trace.layout({call, 0}), floats({3}));
  EXPECT_EQ(trace.layout({call, 1}), floats({2}));
}

TEST(Trace, SuccessorsOfAWrittenValueKeepItsLayout) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2, 3}).t());
  const Value b = add_leaf(trace, at::ones({}));
  const Value after_one = add_add_(trace, {a}, {b});
  const Value after_two = add_add_(trace, view_of(trace, after_one, floats({2})), {b});
  EXPECT_EQ(trace.layout(after_two), geometry_of(at::ones({2, 3}).t()));
  EXPECT_EQ(trace.written_values(trace.node(after_two.node)), std::vector<Value>({after_one}));
}

TEST(Trace, CountsTheBytesThatItWillAllocate) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({8}));
  EXPECT_EQ(trace.pending_bytes(), 0);
  const Value empty = trace.add_empty(floats({4}));
  EXPECT_EQ(trace.pending_bytes(), 16);
  add_relu(trace, {a}, floats({8}));
  EXPECT_EQ(trace.pending_bytes(), 16 + 32);
  add_add_(trace, {empty}, {empty});
  EXPECT_EQ(trace.pending_bytes(), 16 + 32);
}

TEST(Trace, AddressesStayValidWhenTheTraceIsMoved) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Geometry* layout = &trace.layout(a);
  for (int i = 0; i < 100; ++i) {
    trace.own(floats({i}));
  }
  const Trace moved = std::move(trace);
  EXPECT_EQ(&moved.layout(a), layout);
}

// ---- hash ----

using Build = std::function<void(Trace&, Value, Value)>;

Hash128 hash_of(const Build& build, const at::Tensor& a = at::ones({2}), const at::Tensor& b = at::ones({2})) {
  Trace trace;
  const Value first = add_leaf(trace, a);
  const Value second = add_leaf(trace, b);
  build(trace, first, second);
  return trace.hash();
}

TEST(TraceHash, IgnoresDataScalarValuesAndLocations) {
  const Build add = [](Trace& t, Value a, Value b) { add_add(t, {a}, {b}, floats({2}), 1.0); };
  const Build add_more = [](Trace& t, Value a, Value b) { add_add(t, {a}, {b}, floats({2}), 2.0); };
  EXPECT_EQ(hash_of(add), hash_of(add, at::zeros({2})));
  EXPECT_EQ(hash_of(add), hash_of(add_more));
  static const OpInfo& relu = make_op("aten::relu");
  const auto signature = make_signature(relu, {an_operand()}, {floats({2})});
  const auto located = [&](const char* location) {
    return [=](Trace& t, Value a, Value) { t.add_call(signature, Operand{a}, {}, 0, location); };
  };
  EXPECT_EQ(hash_of(located("a.py:1")), hash_of(located("b.py:2")));
}

TEST(TraceHash, DiffersWhereverTheProgramDoes) {
  std::vector<Hash128> hashes = {
      hash_of([](Trace&, Value, Value) {}),
      hash_of([](Trace&, Value, Value) {}, at::ones({3})),
      hash_of([](Trace&, Value, Value) {}, at::ones({2}, at::kInt)),
      hash_of([](Trace& t, Value, Value) { t.add_empty(floats({2})); }),
      hash_of([](Trace& t, Value, Value) { add_leaf(t, at::ones({2})); }),
      hash_of([](Trace& t, Value a, Value) { add_relu(t, {a}, floats({2})); }),
      hash_of([](Trace& t, Value, Value b) { add_relu(t, {b}, floats({2})); }),
      hash_of([](Trace& t, Value, Value) { add_relu(t, {}, floats({2})); }),
      hash_of([](Trace& t, Value a, Value) { add_relu(t, {a}, Geometry::contiguous(at::kInt, {2})); }),
      hash_of([](Trace& t, Value a, Value) { add_relu(t, view_of(t, a, floats({1})), floats({2})); }),
      hash_of([](Trace& t, Value a, Value) { add_relu(t, view_of(t, a, floats({2})), floats({2})); }),
      hash_of([](Trace& t, Value a, Value b) { add_mul(t, {a}, {b}, floats({2})); }),
      hash_of([](Trace& t, Value a, Value b) { add_mul(t, {b}, {a}, floats({2})); }),
      hash_of([](Trace& t, Value a, Value b) { add_add(t, {a}, {b}, floats({2})); }),
      hash_of([](Trace& t, Value a, Value b) { add_add_(t, {a}, {b}); }),
  };
  for (size_t i = 0; i < hashes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(hashes[i], hashes[j]) << i << " and " << j;
    }
  }
}

// ---- post order ----

TEST(PostOrder, ListsOnlyWhatRootsNeedAndOperandsFirst) {
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Value unused = add_leaf(trace, at::ones({2}));
  const Value b = add_relu(trace, {a}, floats({2}));
  add_relu(trace, {unused}, floats({2}));
  const Value c = add_mul(trace, {b}, {a}, floats({2}));
  EXPECT_EQ(needed_nodes(trace, c), std::vector<NodeId>({a.node, b.node, c.node}));
  EXPECT_EQ(needed_nodes(trace, {b, unused}), std::vector<NodeId>({a.node, unused.node, b.node}));
  EXPECT_TRUE(needed_nodes(trace, {}).empty());
}

TEST(PostOrder, SkipsUndefinedOperandsAndDoesNotRecurse) {
  Trace trace;
  Value value = add_relu(trace, {}, floats({2}));
  constexpr size_t kDepth = 200'000;
  for (size_t i = 1; i < kDepth; ++i) {
    value = add_relu(trace, {value}, floats({2}));
  }
  EXPECT_EQ(needed_nodes(trace, value).size(), kDepth);
}

} // namespace
} // namespace lazyplug
