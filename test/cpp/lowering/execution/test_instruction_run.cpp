#include "lowering/execution/instruction_run.h"

#include "common/config.h"
#include "common/metrics.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/computation_test.h"

#include <map>
#include <thread>

namespace lazyplug {
namespace {

std::vector<ComputationOutput> run(const Trace& trace, c10::ArrayRef<Value> roots, std::vector<at::Tensor> leaves) {
  return compile(trace, roots)->run({std::move(leaves), trace.all_scalars()}).outputs;
}

using InstructionRunTest = PairTest<testing::Test>;

TEST_F(InstructionRunTest, WrongNumberOfInputsIsABug) {
  EXPECT_THROW(run(trace, a, {}), c10::Error);
}

// ---- destinations ----

class Destinations : public InstructionRunTest {
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

// ---- strides ----

TEST(PromisedStrides, BrokenPromiseIsFoundBeforeTheKernelIsCalled) {
  const ScopedFlag<bool> verified(config().verify_ir, true);
  const ScopedFlag<int64_t> no_groups_of_one(config().fusion, 1);
  Trace trace;
  auto signature =
      c10::make_intrusive<Signature>(*make_signature(make_op("aten::relu"), {an_operand()}, {floats({2, 3})}));
  signature->operands = {floats({2, 3})};
  const at::Tensor transposed = at::ones({3, 2}).t();
  const Value relu{trace.add_call(signature, Operand{add_leaf(trace, transposed)}, {}, 0, nullptr), 0};
  const auto result = compile(trace, relu)->run({trace.leaves(), {}});
  ASSERT_TRUE(result.outputs[0].error);
  EXPECT_NE(message(result.outputs[0].error).find("was promised"), std::string::npos);
}

TEST(PromisedStrides, ScrambledResultsAreArrangedAndNotLearned) {
  Trace trace;
  Value value = add_leaf(trace, at::ones({2, 3}));
  std::vector<Value> roots;
  for (int i = 0; i < 64; ++i) {
    roots.push_back(value = add_mul(trace, {value}, {value}, floats({2, 3})));
  }
  const auto computation = compile(trace, roots);
  config().scramble.set(1);
  const int64_t before = counter("ResultArranged").value();
  const auto result = computation->run({trace.leaves(), {}});
  const int64_t times = counter("ResultArranged").value() - before;
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

class SideCallsOfARun : public testing::Test {
 protected:
  static constexpr int64_t kSize = 8;
  static constexpr float kHeavy = std::numeric_limits<float>::infinity();

  Value add_mm(Value left, Value right) {
    static const OpInfo& op = make_op("aten::mm");
    return add_simple(trace_, op, {{left}, {right}}, kMatrix, kHeavy);
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

TEST_F(SideCallsOfARun, ResultsAreThoseOfTheOrder) {
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

TEST_F(SideCallsOfARun, FailureSpoilsWhatNeedsItAndNothingElse) {
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

TEST_F(SideCallsOfARun, FailureMeanwhileLeavesItsResults) {
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

TEST_F(SideCallsOfARun, LightCallsTakeTheThreadsThatTheyAlwaysTake) {
  const OpInfo& op = make_op("aten::mm");
  const Value first = add_simple(trace_, op, {{a_}, {b_}}, kMatrix);
  const Value second = add_simple(trace_, op, {{b_}, {b_}}, kMatrix);
  FakeSideThreads threads(FakeSideThreads::When::kOffered);
  const auto ones = at::ones({kSize, kSize});
  const auto result = run({first, second}, {ones, ones}, threads);
  EXPECT_EQ(threads.num_offered(), 0);
  EXPECT_TRUE(at::equal(result.outputs[1].tensor, at::full({kSize, kSize}, kSize)));
}

TEST_F(SideCallsOfARun, TimedRunsHaveNone) {
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
