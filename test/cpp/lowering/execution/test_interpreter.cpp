#include "lowering/execution/interpreter.h"

#include "common/config.h"
#include "common/metrics.h"
#include "lowering/calls/runtime_ops.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/computation_test.h"

namespace lazyplug {
namespace {

using Make = ComputationPtr (*)(const Trace& trace, c10::ArrayRef<Value> roots);

// What every computation does, be it compiled or not.
class ComputationTest : public PairTest<testing::TestWithParam<Make>> {
 protected:
  static ComputationPtr make(const Trace& trace, c10::ArrayRef<Value> roots) {
    return GetParam()(trace, roots);
  }
  static std::vector<ComputationOutput>
  run(const Trace& trace, c10::ArrayRef<Value> roots, std::vector<at::Tensor> leaves) {
    return make(trace, roots)->run({std::move(leaves), trace.all_scalars()}).outputs;
  }

  Value add_test_op(Trace& trace, const char* name, Value self) const {
    return add_simple(trace, make_op(name), {{self}}, kPair);
  }
  static Value add_fail_(Trace& trace, Operand self) {
    static const OpInfo& op = make_op("lazyplug_test::fail_");
    return {trace.add_call(make_signature(op, {an_operand()}, {}, {true}), self, {}, 1, nullptr), 0};
  }
};

std::string name_of(const testing::TestParamInfo<Make>& info) {
  return info.param == &make_interpreter ? "Interpreted" : "Compiled";
}

INSTANTIATE_TEST_SUITE_P(, ComputationTest, testing::Values(&compile, &make_interpreter), name_of);

// ---- values ----

TEST_P(ComputationTest, RunsOnlyWhatItsRootsNeed) {
  add_test_op(trace, "lazyplug_test::watch", a);
  const Value empty = trace.add_empty(kPair);
  const Value result = add_add(trace, {a}, {empty}, kPair);
  EXPECT_EQ(make(trace, result)->num_ops(), 2) << "empty and add";
  EXPECT_EQ(make(trace, a)->num_ops(), 0);
  run(trace, result, {fresh_pair()});
  EXPECT_EQ(Watched::peak(), 0);
}

TEST_P(ComputationTest, RunsWithoutAutograd) {
  const Value result = add_test_op(trace, "lazyplug_test::keys", a);
  const auto outputs = run(trace, result, {fresh_pair().requires_grad_()});
  EXPECT_FALSE(outputs[0].tensor.requires_grad());
  EXPECT_TRUE(seen_excluded_keys().isSupersetOf(c10::autograd_dispatch_keyset));
  EXPECT_TRUE(seen_excluded_keys().isSupersetOf(c10::autocast_dispatch_keyset));
}

// ---- errors ----

TEST_P(ComputationTest, ErrorSpoilsOnlyWhatDependsOnIt) {
  const Value before = add_relu(trace, {a}, kPair);
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value after = add_add(trace, {a}, {before}, kPair);
  const Value spoiled = add_add(trace, {after}, {failed}, kPair);
  const Value spoiled_again = add_relu(trace, {spoiled}, kPair);
  const auto outputs = run(trace, {before, failed, after, spoiled, spoiled_again}, {fresh_pair()});
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({0.F, 2.F})));
  EXPECT_TRUE(at::equal(outputs[2].tensor, at::tensor({-1.F, 4.F})));
  for (size_t i : {1, 3, 4}) {
    EXPECT_FALSE(outputs[i].tensor.defined()) << i;
    ASSERT_TRUE(outputs[i].error) << i;
    EXPECT_EQ(outputs[i].error, outputs[1].error) << "one error for all";
  }
}

TEST_P(ComputationTest, IndependentErrorsStayApart) {
  const Value one = add_test_op(trace, "lazyplug_test::fail", a);
  const Value two = add_test_op(trace, "lazyplug_test::fail_std", a);
  const Value both = add_add(trace, {two}, {one}, kPair);
  const auto outputs = run(trace, {one, two, both}, {fresh_pair()});
  EXPECT_THROW(std::rethrow_exception(outputs[0].error), c10::IndexError);
  EXPECT_THROW(std::rethrow_exception(outputs[1].error), std::out_of_range);
  EXPECT_EQ(outputs[2].error, outputs[1].error) << "that of the first operand";
}

TEST_P(ComputationTest, ErrorTellsTheOpItsOperandsAndItsNode) {
  const auto signature = make_signature(make_op("lazyplug_test::fail"), {an_operand()}, {kPair});
  auto described = c10::make_intrusive<Signature>(*signature);
  described->operands = {kPair};
  const Value failed{trace.add_call(described, Operand{a}, {}, 0, nullptr), 0};
  const Value dependent = add_relu(trace, {failed}, kPair);
  const auto outputs = run(trace, {dependent, a}, {fresh_pair()});
  const std::string text = message(outputs[0].error);
  EXPECT_NE(text.find("index out of range, on purpose"), std::string::npos) << text;
  EXPECT_NE(text.find("while running lazyplug_test::fail(Float[2] strides=[1])"), std::string::npos) << text;
  EXPECT_EQ(outputs[0].failed_node, failed.node);
  EXPECT_EQ(outputs[1].failed_node, Value::kNone);
}

TEST_P(ComputationTest, ErrorBehindAViewSpoilsTheReader) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value reader = add_relu(trace, view_of(trace, failed, floats({1})), floats({1}));
  const auto outputs = run(trace, reader, {fresh_pair()});
  EXPECT_THROW(std::rethrow_exception(outputs[0].error), c10::IndexError);
}

TEST_P(ComputationTest, FailedWriteLeavesTheOldContentsAndTheError) {
  const Value changed = add_fail_(trace, {a});
  const Value changed_again = add_add_(trace, {changed}, {changed});
  const Value reader = add_relu(trace, {changed_again}, kPair);
  const auto outputs = run(trace, {changed_again, reader}, {fresh_pair()});
  ASSERT_TRUE(outputs[0].error);
  EXPECT_THROW(std::rethrow_exception(outputs[0].error), c10::IndexError);
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair()));
  EXPECT_EQ(outputs[1].error, outputs[0].error);
  EXPECT_FALSE(outputs[1].tensor.defined());
}

TEST_P(ComputationTest, WriteOfAFailedOperandLeavesTheOldContentsAndTheError) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value changed = add_add_(trace, {a}, {failed});
  const auto outputs = run(trace, {changed, failed}, {fresh_pair()});
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair()));
  ASSERT_TRUE(outputs[0].error);
  EXPECT_EQ(outputs[0].error, outputs[1].error);
}

TEST_P(ComputationTest, WriteToAFailedValueHasNoContents) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value changed = add_add_(trace, {failed}, {a});
  const auto outputs = run(trace, changed, {fresh_pair()});
  EXPECT_FALSE(outputs[0].tensor.defined());
  EXPECT_TRUE(outputs[0].error);
}

TEST_P(ComputationTest, ComputationIsUsableAfterAnError) {
  const Value b = trace.add_device_data(at::Tensor(), kPair);
  const Value product = add_mul(trace, {a}, {b}, kPair);
  const auto computation = make(trace, product);
  EXPECT_TRUE(computation->run({{fresh_pair(), at::ones({3})}, {}}).outputs[0].error);
  const auto outputs = computation->run({{fresh_pair(), fresh_pair()}, {}}).outputs;
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({1.F, 4.F})));
}

// ---- memory ----

TEST_P(ComputationTest, IntermediateIsFreedAfterItsLastReader) {
  Value value = a;
  for (int i = 0; i < 6; ++i) {
    value = add_test_op(trace, "lazyplug_test::watch", value);
  }
  const auto outputs = run(trace, value, {fresh_pair()});
  EXPECT_EQ(Watched::peak(), 2) << "an op's argument and its result";
  EXPECT_EQ(Watched::alive(), 1);
}

TEST_P(ComputationTest, RootsLiveOn) {
  const Value first = add_test_op(trace, "lazyplug_test::watch", a);
  const Value second = add_test_op(trace, "lazyplug_test::watch", first);
  const auto outputs = run(trace, {first, second}, {fresh_pair()});
  EXPECT_EQ(Watched::alive(), 2);
}

// ---- donation ----

TEST_P(ComputationTest, DonatedLeafIsWrittenInPlace) {
  const Value once = add_add_(trace, {a}, {a});
  const Value twice = add_add_(trace, {once}, {once});
  at::Tensor leaf = fresh_pair();
  const void* address = leaf.data_ptr();
  std::vector<at::Tensor> leaves;
  leaves.push_back(std::move(leaf));
  const auto outputs = run(trace, twice, std::move(leaves));
  EXPECT_EQ(outputs[0].tensor.data_ptr(), address);
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({-4.F, 8.F})));
}

TEST_P(ComputationTest, LeafThatSomebodyHoldsIsNotWritten) {
  const Value changed = add_add_(trace, {a}, {a});
  const at::Tensor leaf = fresh_pair();
  const auto outputs = run(trace, changed, {leaf});
  EXPECT_TRUE(at::equal(leaf, fresh_pair()));
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair() * 2));
}

TEST_P(ComputationTest, LeafWhoseStorageSomebodyHoldsIsNotWritten) {
  const Value changed = add_add_(trace, {a}, {a});
  const at::Tensor held = fresh_pair();
  const auto outputs = run(trace, changed, {held.view({2})});
  EXPECT_TRUE(at::equal(held, fresh_pair()));
  EXPECT_NE(outputs[0].tensor.data_ptr(), held.data_ptr());
}

TEST_P(ComputationTest, ValueThatAnotherRegisterAliasesIsCopiedBeforeItIsWritten) {
  const Value alias = add_test_op(trace, "lazyplug_test::same", a);
  const Value changed = add_add_(trace, {alias}, {alias});
  const auto outputs = run(trace, {a, changed}, {fresh_pair()});
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair()));
  EXPECT_TRUE(at::equal(outputs[1].tensor, fresh_pair() * 2));
}

TEST_P(ComputationTest, IntermediateIsWrittenInPlace) {
  const Value first = add_test_op(trace, "lazyplug_test::watch", a);
  const Value changed = add_add_(trace, {first}, {first});
  const auto outputs = run(trace, changed, {fresh_pair()});
  EXPECT_EQ(Watched::alive(), 1) << "the result lies where the intermediate lay";
}

// ---- strides ----

class PromisedStridesTest : public ComputationTest {
 protected:
  // Relu keeps the strides of its argument; `promised` says otherwise.
  Value add_relu_with(Trace& trace, const at::Tensor& leaf, Geometry promised) {
    return add_relu(trace, {add_leaf(trace, leaf)}, promised);
  }

  static int64_t arranged() {
    return counter("ResultArranged").value();
  }

  const at::Tensor transposed = at::arange(6, at::kFloat).view({3, 2}).t(); // 2x3
  const ScopedFlag<int64_t> no_groups_of_one{config().fusion, 1};
};

INSTANTIATE_TEST_SUITE_P(, PromisedStridesTest, testing::Values(&compile, &make_interpreter), name_of);

TEST_P(PromisedStridesTest, NextKernelReadsWhatWasPromised) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({2, 3}));
  const Value strides =
      add_simple(trace, make_op("lazyplug_test::strides"), {{relu}}, Geometry::contiguous(at::kLong, {2}));
  const int64_t before = arranged();
  const auto result = make(trace, strides)->run({trace.leaves(), {}});
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, at::tensor({int64_t{3}, int64_t{1}})));
  EXPECT_EQ(arranged(), before + 1);
  ASSERT_EQ(result.unexpected.size(), 1);
  EXPECT_EQ(result.unexpected[0].node, relu.node);
  EXPECT_EQ(result.unexpected[0].output, 0);
  EXPECT_EQ(c10::IntArrayRef(result.unexpected[0].strides), transposed.strides());
}

TEST_P(PromisedStridesTest, ResultIsArranged) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({2, 3}));
  const auto result = make(trace, relu)->run({trace.leaves(), {}});
  EXPECT_TRUE(result.outputs[0].tensor.is_contiguous());
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, transposed));
  EXPECT_EQ(result.unexpected.size(), 1);
}

TEST_P(PromisedStridesTest, StridesOfSizeOneCostNoCopy) {
  Trace trace;
  const at::Tensor row = at::arange(3, at::kFloat).view({1, 3});
  Geometry promised = floats({1, 3});
  promised.strides = {17, 1};
  const Value relu = add_relu_with(trace, row, promised);
  const int64_t before = arranged();
  const auto result = make(trace, relu)->run({trace.leaves(), {}});
  EXPECT_EQ(result.outputs[0].tensor.strides(), c10::IntArrayRef({17, 1}));
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, row));
  EXPECT_EQ(arranged(), before);
  EXPECT_EQ(result.unexpected.size(), 1) << "the next signature promises what comes";
}

TEST_P(PromisedStridesTest, UnusedResultIsLeftAlone) {
  Trace trace;
  static const OpInfo& max = make_op("aten::max", "dim");
  Geometry indices = Geometry::contiguous(at::kLong, {3});
  indices.strides = {2};
  const auto signature = make_signature(max, {an_operand(), a_constant(0), a_constant(false)}, {floats({3}), indices});
  const Value values{trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr), 0};
  const auto result = make(trace, values)->run({trace.leaves(), {}});
  EXPECT_TRUE(result.unexpected.empty());
}

TEST_P(PromisedStridesTest, ElementsOfListsAreArranged) {
  Trace trace;
  static const OpInfo& op = make_op("lazyplug_test::transposed_parts");
  const auto signature = make_signature(op, {an_operand()}, {floats({2, 3}), floats({2, 3})});
  const NodeId node = trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr);
  const auto result = make(trace, {{node, 0}, {node, 1}})->run({trace.leaves(), {}});
  EXPECT_TRUE(result.outputs[0].tensor.is_contiguous());
  EXPECT_TRUE(at::equal(result.outputs[1].tensor, transposed + 1));
  ASSERT_EQ(result.unexpected.size(), 2);
  EXPECT_EQ(result.unexpected[1].output, 1);
}

TEST_P(PromisedStridesTest, OtherShapeIsAnError) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({3, 2}));
  const auto result = make(trace, relu)->run({trace.leaves(), {}});
  ASSERT_TRUE(result.outputs[0].error);
  EXPECT_NE(message(result.outputs[0].error).find("aten::relu"), std::string::npos);
}

// ---- operands ----

TEST_P(ComputationTest, OneValueByOneViewIsOneTensor) {
  static const OpInfo& op = make_op("lazyplug_test::same_tensors");
  const Operand view = view_of(trace, a, floats({1}));
  const Operand other = view_of(trace, a, floats({1}));
  const Geometry flag = Geometry::contiguous(at::kBool, {});
  const std::vector<Value> roots = {
      add_simple(trace, op, {view, view}, flag),
      add_simple(trace, op, {view, other}, flag),
      add_simple(trace, op, {{a}, {a}}, flag)};
  const auto outputs = run(trace, roots, {fresh_pair()});
  EXPECT_TRUE(outputs[0].tensor.item<bool>());
  EXPECT_FALSE(outputs[1].tensor.item<bool>());
  EXPECT_TRUE(outputs[2].tensor.item<bool>());
}

TEST_P(ComputationTest, MovingViewBeginsWhereItsScalarSays) {
  const uint32_t offset = trace.add_scalar(1);
  Geometry last = floats({1});
  last.offset = 0;
  const Operand view{a, trace.own(last, offset)};
  const Value relu = add_relu(trace, view, floats({1}));
  const auto computation = make(trace, relu);
  EXPECT_TRUE(at::equal(computation->run({{fresh_pair()}, {c10::IValue(1)}}).outputs[0].tensor, at::tensor({2.F})));
  EXPECT_TRUE(at::equal(computation->run({{fresh_pair()}, {c10::IValue(0)}}).outputs[0].tensor, at::tensor({0.F})));
  EXPECT_THROW(
      std::rethrow_exception(computation->run({{fresh_pair()}, {c10::IValue(2)}}).outputs[0].error),
      c10::IndexError);
}

TEST_P(ComputationTest, CallThatFailsLeavesWhatOthersHold) {
  const Operand half = view_of(trace, a, floats({1}));
  static const OpInfo& op = make_op("aten::add_", "Tensor");
  const auto signature = make_signature(op, {an_operand(), an_operand(), a_scalar()}, {}, {true, false});
  const Value changed{trace.add_call(signature, {half, {a}}, c10::IValue(1), 1, nullptr), 0};
  const at::Tensor held = fresh_pair();
  const auto outputs = run(trace, changed, {held});
  EXPECT_TRUE(outputs[0].error) << "a tensor of two is not added to one of one";
  EXPECT_TRUE(at::equal(held, fresh_pair()));
}

TEST_P(ComputationTest, ListsMayLackTensors) {
  static const OpInfo& op = make_op("aten::index", "Tensor");
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor columns = at::tensor({int64_t{2}, int64_t{0}});
  const auto signature = make_signature(op, {an_operand(), a_list(2)}, {floats({2, 2})});
  const std::vector<Operand> operands = {{add_leaf(trace, matrix)}, {}, {add_leaf(trace, columns)}};
  const Value indexed{trace.add_call(signature, operands, {}, 0, nullptr), 0};
  const auto outputs = run(trace, indexed, trace.leaves());
  ASSERT_FALSE(outputs[0].error) << message(outputs[0].error);
  EXPECT_TRUE(at::equal(outputs[0].tensor, matrix.index_select(1, columns)));
}

TEST_P(ComputationTest, SeedSaysWhatIsDrawn) {
  static const OpInfo& op = make_op("aten::exponential_");
  const auto signature = make_signature(op, {an_operand(), a_constant(1.0), a_seed()}, {}, {true});
  const Value drawn{trace.add_call(signature, Operand{a}, c10::IValue(7), 1, nullptr), 0};
  const at::Tensor expected = fresh_pair().exponential_(1.0, seeded_generator(7));
  EXPECT_TRUE(at::equal(run(trace, drawn, {fresh_pair()})[0].tensor, expected));
}

// ---- times ----

TEST_P(ComputationTest, TellsWhatEachCallTakes) {
  const Value watched = add_test_op(trace, "lazyplug_test::watch", a);
  const Value same = add_test_op(trace, "lazyplug_test::same", watched);
  const auto computation = make(trace, same);
  ComputationInputs inputs{{fresh_pair()}, {}};
  inputs.timed = true;
  const auto times = computation->run(std::move(inputs)).times;
  ASSERT_EQ(times.size(), 2);
  EXPECT_EQ(times[0].node, watched.node);
  EXPECT_STREQ(times[0].name, "lazyplug_test::watch");
  EXPECT_GE(times[1].start, times[0].seconds);
}

// ---- the interpreter alone ----

TEST(Interpreter, TextIsTheTrace) {
  Trace trace;
  const Value a = trace.add_device_data(at::Tensor(), floats({2}));
  const Value relu = add_relu(trace, {a}, floats({2}));
  EXPECT_NE(make_interpreter(trace, relu)->to_string().find("aten::relu"), std::string::npos);
}

TEST(RunCall, HasTheBitsOfAGraph) {
  Trace trace;
  const at::Tensor x = at::linspace(-3, 3, 100);
  const Value a = add_leaf(trace, x);
  static const OpInfo& op = make_op("aten::exp");
  const auto result = compile(trace, add_simple(trace, op, {{a}}, floats({100})))->run({trace.leaves(), {}});
  c10::Stack stack{x};
  run_call(op, stack);
  ASSERT_EQ(stack.size(), 1);
  EXPECT_TRUE(at::equal(stack[0].toTensor(), result.outputs[0].tensor));
}

} // namespace
} // namespace lazyplug
