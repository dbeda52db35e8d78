#include "backend/recording/tracer.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class TracerTest : public BackendTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), expected_fallbacks_);
  }

  int64_t expected_fallbacks_ = 0;
  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(TracerTest, ReplacesArgumentsOnTheStackByResults) {
  c10::Stack stack = {c10::IValue("below"), x, x, 1};
  trace(op_info("aten::add", "Tensor"), &stack);
  ASSERT_EQ(stack.size(), 2);
  EXPECT_EQ(stack[0].toStringRef(), "below");
  expect_equal(stack[1].toTensor(), cpu + cpu);
}

TEST_F(TracerTest, InPlaceOpsReturnTheirArgument) {
  at::Tensor y = x * 1;
  EXPECT_TRUE(y.add_(1).is_same(y));
  expect_equal(y, cpu + 1);
}

TEST_F(TracerTest, OutArgumentsAreWritten) {
  at::Tensor out = at::empty({2, 3}, on_lazy());
  EXPECT_TRUE(at::mul_out(out, x, x).is_same(out));
  expect_equal(out, cpu * cpu);
}

TEST_F(TracerTest, OutArgumentsAreResized) {
  at::Tensor out = at::empty({0}, on_lazy());
  at::mul_out(out, x, x);
  EXPECT_EQ(out.sizes(), cpu.sizes());
  expect_equal(out, cpu * cpu);
}

TEST_F(TracerTest, OutViewsAreWrittenWhereTheyLie) {
  const at::Tensor memory = to_lazy(at::zeros({3, 3}));
  at::Tensor out = memory.slice(0, 1, 3);
  at::mul_out(out, x, x);
  expect_equal(memory, at::cat({at::zeros({1, 3}), cpu * cpu}));
}

TEST_F(TracerTest, SeveralResults) {
  const auto [values, indices] = x.sort(1, /*descending=*/true);
  const auto [expected_values, expected_indices] = cpu.sort(1, true);
  expect_equal(indices, expected_indices);
  expect_equal(values, expected_values);
}

TEST_F(TracerTest, ListsOfTensors) {
  expect_equal(at::cat({x, x * 2}, 1), at::cat({cpu, cpu * 2}, 1));
}

TEST_F(TracerTest, ListsAsResults) {
  const auto parts = at::split_with_sizes_copy(x, {1, 2}, 1);
  EXPECT_EQ(state_of(parts[0]), State::kPending);
  expect_equal(parts[1], cpu.slice(1, 1));
}

TEST_F(TracerTest, ScalarsThatChangeDoNotCompileAgain) {
  computation_cache().clear();
  for (int i = 3; i < 8; ++i) {
    expect_equal(x.add(x, 0.5 * i), cpu.add(cpu, 0.5 * i));
    expect_equal(x * (1.5 * i), cpu * (1.5 * i));
  }
  EXPECT_EQ(count("Compile"), 2);
  EXPECT_EQ(count("CacheHit"), 8);
}

TEST_F(TracerTest, NumbersOnTheCpuAreOperands) {
  expect_equal(x + at::full({}, 2.0, at::kDouble), cpu + 2);
  expect_equal(at::full({}, 2.F) * x, cpu * 2);
}

TEST_F(TracerTest, FactoriesAreRecorded) {
  const at::Tensor ones = at::ones({2, 3}, lazy_device(0));
  EXPECT_EQ(state_of(ones), State::kPending);
  expect_equal(ones + x, cpu + 1);
}

TEST_F(TracerTest, ResultsOnTheCpuAreMadeThere) {
  const at::Tensor zeros = at::zeros_like(x, at::TensorOptions(at::kCPU));
  EXPECT_TRUE(zeros.is_cpu());
  EXPECT_TRUE(at::equal(zeros, at::zeros({2, 3})));
}

TEST_F(TracerTest, IndicesMayBeOnTheCpu) {
  expect_equal(x.index({at::tensor({1, 0, 1})}), cpu.index({at::tensor({1, 0, 1})}));
  expect_equal(x.index({to_lazy(at::tensor({1}))}), cpu.index({at::tensor({1})}));
}

TEST_F(TracerTest, FullOverlapIsFineAndPartialOverlapRaises) {
  at::Tensor y = to_lazy(iota({6}));
  y.add_(y);
  EXPECT_EQ(error_of([&] { y.slice(0, 0, 4).add_(y.slice(0, 1, 5)); }), error_of([&] {
              const at::Tensor c = iota({6});
              c.slice(0, 0, 4).add_(c.slice(0, 1, 5));
            }));
  expect_equal(y, iota({6}) * 2);
}

TEST_F(TracerTest, ErrorsInShapesRaiseAtTheCallAndAsOnTheCpu) {
  EXPECT_EQ(error_of([&] { x.mm(x); }), error_of([&] { cpu.mm(cpu); }));
  EXPECT_EQ(error_of([&] { x + to_lazy(at::ones({7})); }), error_of([&] { cpu + at::ones({7}); }));
  EXPECT_EQ(context_.pending_nodes(), 0);
}

TEST_F(TracerTest, CustomOpsWithMetaKernelAreRecorded) {
  const at::Tensor y = test_ops::same(x);
  EXPECT_EQ(state_of(y), State::kPending);
  expect_equal(y, cpu);
}

TEST_F(TracerTest, OpsWithoutMetaKernelFallBack) {
  expect_equal(test_ops::no_meta(x), cpu);
  expected_fallbacks_ = 1;
}

TEST_F(TracerTest, RandomOpsFollowTheSeedAndCompileOnce) {
  auto generator = at::globalContext().defaultGenerator(lazy_device(0));
  const auto draw = [&] { return at::empty({16}, on_lazy()).uniform_(0, 1).cpu(); };
  computation_cache().clear();
  generator.set_current_seed(3);
  const at::Tensor first = draw();
  const at::Tensor second = draw();
  generator.set_current_seed(3);
  EXPECT_TRUE(at::equal(draw(), first));
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(TracerTest, EmptyTensors) {
  const at::Tensor none = at::empty({0, 3}, on_lazy());
  expect_equal(none + 1, at::empty({0, 3}));
  expect_equal(none.sum(0), at::zeros({3}));
  expect_equal(at::cat({none, x}), cpu);
}

} // namespace
} // namespace lazyplug
