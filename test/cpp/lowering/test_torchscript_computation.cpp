#include "lowering/torchscript_computation.h"

#include "common/config.h"
#include "common/metrics.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/programs.h"
#include "test/cpp/lowering/test_ops.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <thread>

namespace lazyplug {
namespace {

const Geometry kPair = floats({2});

std::vector<ComputationOutput> run(const Trace& trace, c10::ArrayRef<Value> roots, std::vector<at::Tensor> leaves) {
  return compile(trace, roots)->run({std::move(leaves), trace.all_scalars()}).outputs;
}

std::string message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

Value add_test_op(Trace& trace, const char* name, Value self) {
  return add_simple(trace, make_op(name), {{self}}, kPair);
}

Value add_fail_(Trace& trace, Operand self) {
  static const OpInfo& op = make_op("lazyplug_test::fail_");
  return {trace.add_call(make_signature(op, {an_operand()}, {}, {true}), self, {}, 1, nullptr), 0};
}

class TorchScriptComputationTest : public testing::Test {
 protected:
  void SetUp() override {
    Watched::reset();
  }

  at::Tensor fresh_pair() const {
    return at::tensor({-1.F, 2.F});
  }

  Trace trace;
  const Value a = trace.add_device_data(at::Tensor(), kPair);
};

// ---- values ----

TEST_F(TorchScriptComputationTest, OneCompilationRunsManyTimes) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const auto computation = compile(trace, sum);
  for (float value : {1.F, 2.F}) {
    const auto outputs = computation->run({{at::full({2}, value)}, {c10::IValue(10)}}).outputs;
    ASSERT_EQ(outputs.size(), 1);
    EXPECT_TRUE(at::equal(outputs[0].tensor, at::full({2}, 11 * value)));
    EXPECT_FALSE(outputs[0].error);
  }
}

TEST_F(TorchScriptComputationTest, TextIsTheGraph) {
  const auto computation = compile(trace, add_relu(trace, {a}, kPair));
  EXPECT_NE(computation->to_string().find("aten::relu"), std::string::npos);
}

TEST_F(TorchScriptComputationTest, RunsOnlyWhatItsRootsNeed) {
  add_test_op(trace, "lazyplug_test::watch", a);
  const Value empty = trace.add_empty(kPair);
  const Value result = add_add(trace, {a}, {empty}, kPair);
  EXPECT_EQ(compile(trace, result)->num_ops(), 2) << "empty and add";
  EXPECT_EQ(compile(trace, a)->num_ops(), 0);
  run(trace, result, {fresh_pair()});
  EXPECT_EQ(Watched::peak(), 0);
}

TEST_F(TorchScriptComputationTest, WrongNumberOfInputsIsABug) {
  EXPECT_THROW(run(trace, a, {}), c10::Error);
}

TEST_F(TorchScriptComputationTest, RunsWithoutAutograd) {
  const Value result = add_test_op(trace, "lazyplug_test::keys", a);
  const auto outputs = run(trace, result, {fresh_pair().requires_grad_()});
  EXPECT_FALSE(outputs[0].tensor.requires_grad());
  EXPECT_TRUE(seen_excluded_keys().isSupersetOf(c10::autograd_dispatch_keyset));
  EXPECT_TRUE(seen_excluded_keys().isSupersetOf(c10::autocast_dispatch_keyset));
}

// ---- errors ----

TEST_F(TorchScriptComputationTest, ErrorSpoilsOnlyWhatDependsOnIt) {
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

TEST_F(TorchScriptComputationTest, IndependentErrorsStayApart) {
  const Value one = add_test_op(trace, "lazyplug_test::fail", a);
  const Value two = add_test_op(trace, "lazyplug_test::fail_std", a);
  const Value both = add_add(trace, {two}, {one}, kPair);
  const auto outputs = run(trace, {one, two, both}, {fresh_pair()});
  EXPECT_THROW(std::rethrow_exception(outputs[0].error), c10::IndexError);
  EXPECT_THROW(std::rethrow_exception(outputs[1].error), std::out_of_range);
  EXPECT_EQ(outputs[2].error, outputs[1].error) << "that of the first operand";
}

TEST_F(TorchScriptComputationTest, ErrorTellsTheOpItsOperandsAndItsNode) {
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

TEST_F(TorchScriptComputationTest, ErrorBehindAViewSpoilsTheReader) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value reader = add_relu(trace, view_of(trace, failed, floats({1})), floats({1}));
  const auto outputs = run(trace, reader, {fresh_pair()});
  EXPECT_THROW(std::rethrow_exception(outputs[0].error), c10::IndexError);
}

TEST_F(TorchScriptComputationTest, FailedWriteLeavesTheOldContentsAndTheError) {
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

TEST_F(TorchScriptComputationTest, WriteOfAFailedOperandLeavesTheOldContentsAndTheError) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value changed = add_add_(trace, {a}, {failed});
  const auto outputs = run(trace, {changed, failed}, {fresh_pair()});
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair()));
  ASSERT_TRUE(outputs[0].error);
  EXPECT_EQ(outputs[0].error, outputs[1].error);
}

TEST_F(TorchScriptComputationTest, WriteToAFailedValueHasNoContents) {
  const Value failed = add_test_op(trace, "lazyplug_test::fail", a);
  const Value changed = add_add_(trace, {failed}, {a});
  const auto outputs = run(trace, changed, {fresh_pair()});
  EXPECT_FALSE(outputs[0].tensor.defined());
  EXPECT_TRUE(outputs[0].error);
}

TEST_F(TorchScriptComputationTest, ComputationIsUsableAfterAnError) {
  const Value b = trace.add_device_data(at::Tensor(), kPair);
  const Value product = add_mul(trace, {a}, {b}, kPair);
  const auto computation = compile(trace, product);
  EXPECT_TRUE(computation->run({{fresh_pair(), at::ones({3})}, {}}).outputs[0].error);
  const auto outputs = computation->run({{fresh_pair(), fresh_pair()}, {}}).outputs;
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({1.F, 4.F})));
}

// ---- memory ----

TEST_F(TorchScriptComputationTest, IntermediateIsFreedAfterItsLastReader) {
  Value value = a;
  for (int i = 0; i < 6; ++i) {
    value = add_test_op(trace, "lazyplug_test::watch", value);
  }
  const auto outputs = run(trace, value, {fresh_pair()});
  EXPECT_EQ(Watched::peak(), 2) << "an op's argument and its result";
  EXPECT_EQ(Watched::alive(), 1);
}

TEST_F(TorchScriptComputationTest, RootsLiveOn) {
  const Value first = add_test_op(trace, "lazyplug_test::watch", a);
  const Value second = add_test_op(trace, "lazyplug_test::watch", first);
  const auto outputs = run(trace, {first, second}, {fresh_pair()});
  EXPECT_EQ(Watched::alive(), 2);
}

// ---- destinations ----

class Destinations : public TorchScriptComputationTest {
 protected:
  // The result of mul(leaf, leaf + leaf), and whether it lies in the memory of the leaf or of the sum.
  bool takes_memory(at::Tensor leaf) {
    const Value sum = add_add(trace, {a}, {a}, kPair);
    const void* address = leaf.data_ptr();
    std::vector<at::Tensor> leaves;
    leaves.push_back(std::move(leaf));
    const auto outputs = run(trace, add_mul(trace, {a}, {sum}, kPair), std::move(leaves));
    EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({2.F, 8.F})));
    return outputs[0].tensor.data_ptr() == address;
  }
};

TEST_F(Destinations, ResultsTakeTheMemoryOfDyingOperands) {
  EXPECT_TRUE(takes_memory(fresh_pair()));
}

TEST_F(Destinations, WhatSomebodyHoldsIsNotWritten) {
  const at::Tensor leaf = fresh_pair();
  takes_memory(leaf);
  EXPECT_TRUE(at::equal(leaf, fresh_pair()));
}

TEST_F(Destinations, MemoryThatSomebodyHoldsIsNotWritten) {
  at::Tensor leaf = fresh_pair();
  const at::Tensor view = leaf.view({2, 1});
  takes_memory(std::move(leaf));
  EXPECT_TRUE(at::equal(view, fresh_pair().view({2, 1})));
}

TEST_F(Destinations, MemoryThatIsLargerIsNotTaken) {
  EXPECT_FALSE(takes_memory(at::tensor({-1.F, 2.F, 3.F}).slice(0, 0, 2)));
}

TEST_F(Destinations, WhatIsReadLaterIsNotWritten) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const Value product = add_mul(trace, {a}, {sum}, kPair);
  std::vector<at::Tensor> leaves;
  leaves.push_back(fresh_pair());
  const auto outputs = run(trace, {product, a, sum}, std::move(leaves));
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({2.F, 8.F})));
  EXPECT_TRUE(at::equal(outputs[1].tensor, fresh_pair()));
  EXPECT_TRUE(at::equal(outputs[2].tensor, at::tensor({-2.F, 4.F})));
}

// The CPU divides these with other bits in place.
TEST_F(Destinations, ComplexResultsHaveMemoryOfTheirOwn) {
  const Geometry layout = Geometry::contiguous(at::kComplexFloat, {5, 1});
  Trace complex;
  const Value x = complex.add_device_data(at::Tensor(), layout);
  const Value y = complex.add_device_data(at::Tensor(), Geometry::contiguous(at::kComplexFloat, {1, 1}));
  const Value quotient = add_simple(complex, make_op("aten::div", "Tensor"), {{x}, {y}}, layout);
  at::manual_seed(0);
  for (int i = 0; i < 100; ++i) {
    const at::Tensor left = at::randn({5, 1}, at::kComplexFloat);
    const at::Tensor right = at::randn({1, 1}, at::kComplexFloat);
    std::vector<at::Tensor> leaves;
    leaves.push_back(left.clone());
    leaves.push_back(right.clone());
    const auto outputs = run(complex, quotient, std::move(leaves));
    EXPECT_TRUE(at::equal(outputs[0].tensor, left / right));
  }
}

TEST_F(Destinations, AreAPassThatCanBeSwitchedOff) {
  config().disabled_passes.set("destinations");
  EXPECT_FALSE(takes_memory(fresh_pair()));
  config().disabled_passes.set("");
}

// ---- donation ----

TEST_F(TorchScriptComputationTest, DonatedLeafIsWrittenInPlace) {
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

TEST_F(TorchScriptComputationTest, LeafThatSomebodyHoldsIsNotWritten) {
  const Value changed = add_add_(trace, {a}, {a});
  const at::Tensor leaf = fresh_pair();
  const auto outputs = run(trace, changed, {leaf});
  EXPECT_TRUE(at::equal(leaf, fresh_pair()));
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair() * 2));
}

TEST_F(TorchScriptComputationTest, LeafWhoseStorageSomebodyHoldsIsNotWritten) {
  const Value changed = add_add_(trace, {a}, {a});
  const at::Tensor held = fresh_pair();
  const auto outputs = run(trace, changed, {held.view({2})});
  EXPECT_TRUE(at::equal(held, fresh_pair()));
  EXPECT_NE(outputs[0].tensor.data_ptr(), held.data_ptr());
}

TEST_F(TorchScriptComputationTest, ValueThatAnotherRegisterAliasesIsCopiedBeforeItIsWritten) {
  const Value alias = add_test_op(trace, "lazyplug_test::same", a);
  const Value changed = add_add_(trace, {alias}, {alias});
  const auto outputs = run(trace, {a, changed}, {fresh_pair()});
  EXPECT_TRUE(at::equal(outputs[0].tensor, fresh_pair()));
  EXPECT_TRUE(at::equal(outputs[1].tensor, fresh_pair() * 2));
}

TEST_F(TorchScriptComputationTest, IntermediateIsWrittenInPlace) {
  const Value first = add_test_op(trace, "lazyplug_test::watch", a);
  const Value changed = add_add_(trace, {first}, {first});
  const auto outputs = run(trace, changed, {fresh_pair()});
  EXPECT_EQ(Watched::alive(), 1) << "the result lies where the intermediate lay";
}

// ---- strides ----

class PromisedStridesTest : public TorchScriptComputationTest {
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

TEST_F(PromisedStridesTest, NextKernelReadsWhatWasPromised) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({2, 3}));
  const Value strides =
      add_simple(trace, make_op("lazyplug_test::strides"), {{relu}}, Geometry::contiguous(at::kLong, {2}));
  const int64_t before = arranged();
  const auto result = compile(trace, strides)->run({trace.leaves(), {}});
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, at::tensor({int64_t{3}, int64_t{1}})));
  EXPECT_EQ(arranged(), before + 1);
  ASSERT_EQ(result.unexpected.size(), 1);
  EXPECT_EQ(result.unexpected[0].node, relu.node);
  EXPECT_EQ(result.unexpected[0].output, 0);
  EXPECT_EQ(c10::IntArrayRef(result.unexpected[0].strides), transposed.strides());
}

TEST_F(PromisedStridesTest, ResultIsArranged) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({2, 3}));
  const auto result = compile(trace, relu)->run({trace.leaves(), {}});
  EXPECT_TRUE(result.outputs[0].tensor.is_contiguous());
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, transposed));
  EXPECT_EQ(result.unexpected.size(), 1);
}

TEST_F(PromisedStridesTest, StridesOfSizeOneCostNoCopy) {
  Trace trace;
  const at::Tensor row = at::arange(3, at::kFloat).view({1, 3});
  Geometry promised = floats({1, 3});
  promised.strides = {17, 1};
  const Value relu = add_relu_with(trace, row, promised);
  const int64_t before = arranged();
  const auto result = compile(trace, relu)->run({trace.leaves(), {}});
  EXPECT_EQ(result.outputs[0].tensor.strides(), c10::IntArrayRef({17, 1}));
  EXPECT_TRUE(at::equal(result.outputs[0].tensor, row));
  EXPECT_EQ(arranged(), before);
  EXPECT_EQ(result.unexpected.size(), 1) << "the next signature promises what comes";
}

TEST_F(PromisedStridesTest, UnusedResultIsLeftAlone) {
  Trace trace;
  static const OpInfo& max = make_op("aten::max", "dim");
  Geometry indices = Geometry::contiguous(at::kLong, {3});
  indices.strides = {2};
  const auto signature = make_signature(max, {an_operand(), a_constant(0), a_constant(false)}, {floats({3}), indices});
  const Value values{trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr), 0};
  const auto result = compile(trace, values)->run({trace.leaves(), {}});
  EXPECT_TRUE(result.unexpected.empty());
}

TEST_F(PromisedStridesTest, ElementsOfListsAreArranged) {
  Trace trace;
  static const OpInfo& op = make_op("lazyplug_test::transposed_parts");
  const auto signature = make_signature(op, {an_operand()}, {floats({2, 3}), floats({2, 3})});
  const NodeId node = trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr);
  const auto result = compile(trace, {{node, 0}, {node, 1}})->run({trace.leaves(), {}});
  EXPECT_TRUE(result.outputs[0].tensor.is_contiguous());
  EXPECT_TRUE(at::equal(result.outputs[1].tensor, transposed + 1));
  ASSERT_EQ(result.unexpected.size(), 2);
  EXPECT_EQ(result.unexpected[1].output, 1);
}

TEST_F(PromisedStridesTest, OtherShapeIsAnError) {
  Trace trace;
  const Value relu = add_relu_with(trace, transposed, floats({3, 2}));
  const auto result = compile(trace, relu)->run({trace.leaves(), {}});
  ASSERT_TRUE(result.outputs[0].error);
  EXPECT_NE(message(result.outputs[0].error).find("aten::relu"), std::string::npos);
}

TEST_F(PromisedStridesTest, BrokenPromiseIsFoundBeforeTheKernelIsCalled) {
  config().verify_ir.set(true);
  Trace trace;
  auto signature =
      c10::make_intrusive<Signature>(*make_signature(make_op("aten::relu"), {an_operand()}, {floats({2, 3})}));
  signature->operands = {floats({2, 3})};
  const Value relu{trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr), 0};
  const auto result = compile(trace, relu)->run({trace.leaves(), {}});
  config().verify_ir.set(false);
  ASSERT_TRUE(result.outputs[0].error);
  EXPECT_NE(message(result.outputs[0].error).find("was promised"), std::string::npos);
}

TEST_F(PromisedStridesTest, ScrambledResultsAreArrangedAndNotLearned) {
  Trace trace;
  Value value = add_leaf(trace, at::ones({2, 3}));
  std::vector<Value> roots;
  for (int i = 0; i < 64; ++i) {
    roots.push_back(value = add_mul(trace, {value}, {value}, floats({2, 3})));
  }
  const auto computation = compile(trace, roots);
  config().scramble.set(1);
  const int64_t before = arranged();
  const auto result = computation->run({trace.leaves(), {}});
  const int64_t times = arranged() - before;
  config().scramble.set(0);
  EXPECT_GT(times, 64 / 4);
  EXPECT_LT(times, 64 * 3 / 4);
  EXPECT_TRUE(result.unexpected.empty());
  for (const ComputationOutput& output : result.outputs) {
    EXPECT_TRUE(output.tensor.is_contiguous());
    EXPECT_TRUE(at::equal(output.tensor, at::ones({2, 3})));
  }
}

// ---- side calls ----

// Runs them when they are offered, elsewhere, or when they are awaited.
class FakeSideThreads final : public SideThreads {
 public:
  enum class When { kOffered, kElsewhere, kAwaited };
  explicit FakeSideThreads(When when) : when_(when) {}

  void offer(SideTask& task) override {
    ++num_offered_;
    if (when_ == When::kOffered) {
      task.run();
    } else if (when_ == When::kElsewhere) {
      threads_[&task] = std::thread([&task] { task.run(); });
    }
  }
  void await(SideTask& task) override {
    if (when_ == When::kElsewhere) {
      threads_.at(&task).join();
      threads_.erase(&task);
    } else if (when_ == When::kAwaited) {
      task.run();
    }
  }
  void run_as_job(c10::function_ref<void()> body) override {
    body();
  }
  size_t num_offered() const {
    return num_offered_;
  }

 private:
  const When when_;
  size_t num_offered_ = 0;
  std::map<SideTask*, std::thread> threads_;
};

constexpr FakeSideThreads::When kAlways[] = {
    FakeSideThreads::When::kOffered,
    FakeSideThreads::When::kElsewhere,
    FakeSideThreads::When::kAwaited};

class SideCallComputationTest : public testing::Test {
 protected:
  static constexpr int64_t kSize = 8;

  Value add_mm(Value left, Value right) {
    static const OpInfo& op = make_op("aten::mm");
    return add_simple(trace_, op, {{left}, {right}}, kMatrix);
  }
  ComputationResult run(c10::ArrayRef<Value> roots, std::vector<at::Tensor> leaves, SideThreads& threads) {
    ComputationInputs inputs{std::move(leaves), trace_.all_scalars()};
    inputs.side_threads = &threads;
    return compile(trace_, roots)->run(std::move(inputs));
  }

  const Geometry kMatrix = floats({kSize, kSize});
  const ScopedFlag<int64_t> all_{config().side_calls, 0};
  Trace trace_;
  const Value a_ = trace_.add_device_data(at::Tensor(), kMatrix);
  const Value b_ = trace_.add_device_data(at::Tensor(), kMatrix);
};

TEST_F(SideCallComputationTest, ResultsAreThoseOfTheOrder) {
  std::vector<Value> products;
  for (int i = 0; i < 5; ++i) {
    products.push_back(add_mm(i % 2 == 0 ? a_ : b_, products.empty() ? b_ : products[products.size() / 2]));
  }
  const auto a = at::rand({kSize, kSize});
  const auto b = at::rand({kSize, kSize});
  const auto expected = compile(trace_, products)->run({{a, b}, trace_.all_scalars()});
  for (const auto when : kAlways) {
    FakeSideThreads threads(when);
    const auto result = run(products, {a, b}, threads);
    EXPECT_GE(threads.num_offered(), 2);
    for (size_t i = 0; i < products.size(); ++i) {
      EXPECT_TRUE(at::equal(result.outputs[i].tensor, expected.outputs[i].tensor)) << i;
    }
  }
}

TEST_F(SideCallComputationTest, FailureSpoilsWhatNeedsItAndNothingElse) {
  const Value fails = add_mm(a_, b_); // given a matrix of another dtype
  const Value succeeds = add_mm(a_, a_);
  const Value spoiled = add_relu(trace_, {fails}, kMatrix);
  for (const auto when : kAlways) {
    FakeSideThreads threads(when);
    const auto result =
        run({fails, succeeds, spoiled}, {at::ones({kSize, kSize}), at::ones({kSize, kSize}, at::kDouble)}, threads);
    EXPECT_EQ(threads.num_offered(), 2);
    EXPECT_NE(message(result.outputs[0].error).find("while running aten::mm("), std::string::npos);
    EXPECT_EQ(result.outputs[0].failed_node, fails.node);
    EXPECT_FALSE(result.outputs[1].error);
    EXPECT_TRUE(at::equal(result.outputs[1].tensor, at::full({kSize, kSize}, kSize)));
    EXPECT_EQ(result.outputs[2].error, result.outputs[0].error);
  }
}

TEST_F(SideCallComputationTest, FailureMeanwhileLeavesItsResults) {
  const std::vector<Value> products = {add_mm(a_, a_), add_mm(a_, a_)};
  const Value fails = add_simple(trace_, make_op("lazyplug_test::fail"), {{a_}}, kMatrix);
  for (const auto when : kAlways) {
    FakeSideThreads threads(when);
    const auto ones = at::ones({kSize, kSize});
    const auto result = run({products[0], fails, products[1]}, {ones, ones}, threads);
    EXPECT_EQ(threads.num_offered(), 2);
    for (const size_t i : {0, 2}) {
      EXPECT_FALSE(result.outputs[i].error);
      EXPECT_TRUE(at::equal(result.outputs[i].tensor, at::full({kSize, kSize}, kSize)));
    }
    EXPECT_TRUE(result.outputs[1].error);
  }
}

TEST_F(SideCallComputationTest, TimedRunsHaveNone) {
  const std::vector<Value> products = {add_mm(a_, b_), add_mm(b_, a_)};
  FakeSideThreads threads(FakeSideThreads::When::kOffered);
  ComputationInputs inputs{{at::ones({kSize, kSize}), at::ones({kSize, kSize})}, {}};
  inputs.side_threads = &threads;
  inputs.timed = true;
  EXPECT_EQ(compile(trace_, products)->run(std::move(inputs)).times.size(), 2);
  EXPECT_EQ(threads.num_offered(), 0);
}

} // namespace
} // namespace lazyplug
