#include "lowering/nodes/pointwise_kernel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <utility>

namespace lazyplug {
namespace {

const std::string kText = R"(
graph(%a : Float(2, 3, strides=[3, 1]), %b : Float(3, strides=[1]), %n : float):
  %c : Float(2, 3, strides=[3, 1]), %d : Float(2, 3, strides=[3, 1]) = lazyplug::pointwise[program="f32 memory 4 slots 4 numbers 1 2 = mul 0 1 ; 3 = add 0 0 0 ;", layout="2 3;3 1", dtypes="6 6", places="0 3 1;0 0 1", depends="0 1;0", old="0;-1", made_by="7 0;8 1", ops=["aten::mul_.Tensor", "aten::add.Tensor"]](%a, %b, %n)
  return (%c, %d)
)";

class PointwiseKernelTest : public testing::Test {
 protected:
  void SetUp() override {
    torch::jit::parseIR(kText, graph.get());
  }
  c10::Stack run(c10::Stack stack, bool may_donate = true) {
    PointwiseKernel(**graph->nodes().begin(), may_donate)(stack);
    return stack;
  }

  std::shared_ptr<torch::jit::Graph> graph = std::make_shared<torch::jit::Graph>();
  const at::Tensor a = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor b = at::tensor({1.F, 2.F, 3.F});
};

TEST_F(PointwiseKernelTest, RunsHereAndOnTorchScriptsInterpreter) {
  const c10::Stack results = run({a, b, 2.0});
  ASSERT_EQ(results.size(), 2);
  EXPECT_TRUE(results[0].toTensor().equal(a * b));
  EXPECT_TRUE(results[1].toTensor().equal(a + 2 * a));
  c10::Stack stack{a, b, 2.0};
  torch::jit::InterpreterState(torch::jit::Code(graph, "test")).run(stack);
  ASSERT_EQ(stack.size(), 2);
  EXPECT_TRUE(stack[0].toTensor().equal(a * b));
  EXPECT_TRUE(stack[1].toTensor().equal(a + 2 * a));
}

TEST_F(PointwiseKernelTest, InputsMoveWithinTheirMemory) {
  graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(
      R"(
graph(%a : Float(6, strides=[1]), %n : float, %at : int):
  %c : Float(2, 2, strides=[2, 1]) = lazyplug::pointwise[program="f32 memory 2 slots 2 numbers 1 1 = add 0 0 0 ;", layout="2 2;2 1", dtypes="6", places="0 1 2", moving="0", depends="0", old="-1", made_by="1 0", ops=["aten::add.Tensor"]](%a, %n, %at)
  return (%c)
)",
      graph.get());
  const at::Tensor flat = a.view({6});
  const at::Tensor shifted = flat.slice(0, 2, 6).view({2, 2}).t();
  EXPECT_TRUE(run({flat, 2.0, 2})[0].toTensor().equal(shifted * 3));
  for (const int64_t offset : {int64_t{-1}, int64_t{3}, INT64_MAX}) {
    EXPECT_THROW(run({flat, 2.0, offset}), c10::IndexError) << offset;
  }
}

TEST_F(PointwiseKernelTest, WhatDiesMakesRoomIfItIsNotReadAgain) {
  const auto run_on_copy = [&](bool keep, bool may_donate) {
    c10::Stack stack;
    stack.emplace_back(a.clone());
    stack.emplace_back(b);
    stack.emplace_back(1.0);
    const void* memory = stack[0].toTensor().const_data_ptr();
    const at::Tensor kept = keep ? stack[0].toTensor() : at::Tensor();
    const c10::Stack results = run(std::move(stack), may_donate);
    EXPECT_TRUE(results[0].toTensor().equal(a * b));
    EXPECT_TRUE(results[1].toTensor().equal(a + a));
    EXPECT_NE(results[0].toTensor().const_data_ptr(), memory); // `add` still reads it
    return results[1].toTensor().const_data_ptr() == memory;
  };
  EXPECT_TRUE(run_on_copy(/*keep=*/false, /*may_donate=*/true));
  EXPECT_FALSE(run_on_copy(/*keep=*/true, /*may_donate=*/true));
  EXPECT_FALSE(run_on_copy(/*keep=*/false, /*may_donate=*/false));
}

// Has no memory, once; or for what is large.
struct FailingAllocator final : c10::Allocator {
  explicit FailingAllocator(size_t limit = 0) : limit(limit) {}
  c10::DataPtr allocate(size_t size) override {
    TORCH_CHECK(limit != 0 ? size < limit : std::exchange(has_failed, true), "out of memory");
    return c10::GetDefaultCPUAllocator()->allocate(size);
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
  const size_t limit;
  bool has_failed = false;
};

TEST_F(PointwiseKernelTest, WhatCouldNotBeReplacedKeepsItsContentsAndItsMemory) {
  c10::Stack stack;
  stack.emplace_back(a.clone());
  stack.emplace_back(b);
  stack.emplace_back(1.0);
  const PointwiseKernel kernel(**graph->nodes().begin(), /*may_donate=*/true);
  FailingAllocator allocator;
  c10::Allocator* const usual = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
  EXPECT_THROW(kernel(stack), OutputErrors);
  c10::SetCPUAllocator(usual, /*priority=*/255);
  ASSERT_EQ(stack.size(), 2);
  EXPECT_TRUE(stack[0].toTensor().equal(a));
  EXPECT_TRUE(stack[1].toTensor().equal(a + a));
}

TEST_F(PointwiseKernelTest, TotalsAreThoseOfTheThreads) {
  graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(
      R"(
graph(%a : Float(40000, strides=[1])):
  %c : Float(40000, strides=[1]), %d : Float(), %e : Float() = lazyplug::pointwise[program="f32 memory 4 slots 4 numbers 0 2 = abs 0 ; 1 = neg 0 ; 3 = copy 1 ;", layout="40000;1", dtypes="6 6 6", places="0 1", depends="0;0;0", old="0;-1;-1", made_by="1 0;2 1;3 2", totals="0 1 2", ops=["aten::neg_", "aten::sum", "aten::mean"]](%a)
  return (%c, %d, %e)
)",
      graph.get());
  const at::Tensor many = at::randn({40'000});
  const int num_threads = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const c10::Stack results = run({many.clone()});
    EXPECT_TRUE(results[0].toTensor().equal(-many));
    EXPECT_TRUE(results[1].toTensor().equal(many.abs().sum())) << threads;
    EXPECT_TRUE(results[2].toTensor().equal((-many).mean())) << threads;
  }
  // Without memory for what is added up, there is no total.
  c10::Stack stack;
  stack.emplace_back(many.clone());
  const PointwiseKernel kernel(**graph->nodes().begin(), /*may_donate=*/true);
  FailingAllocator allocator(/*limit=*/100'000);
  c10::Allocator* const usual = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
  EXPECT_THROW(kernel(stack), OutputErrors);
  c10::SetCPUAllocator(usual, /*priority=*/255);
  at::set_num_threads(num_threads);
  ASSERT_EQ(stack.size(), 3);
  EXPECT_TRUE(stack[0].toTensor().equal(-many));
  EXPECT_FALSE(stack[1].toTensor().defined());
  EXPECT_FALSE(stack[2].toTensor().defined());
}

TEST_F(PointwiseKernelTest, WhatDependsOnNothingThatIsMissingIsComputed) {
  const c10::Stack results = run({a.clone(), c10::IValue(), 1.0});
  EXPECT_FALSE(results[0].toTensor().defined());
  EXPECT_TRUE(results[1].toTensor().equal(a + a));
  const c10::Stack none = run({c10::IValue(), b, 1.0});
  EXPECT_FALSE(none[0].toTensor().defined());
  EXPECT_FALSE(none[1].toTensor().defined());
}

TEST_F(PointwiseKernelTest, InputsAreFirstMadeToLieAsTheirTypesSay) {
  const c10::Stack results = run({a.t().contiguous().t(), b, 1});
  EXPECT_TRUE(results[0].toTensor().equal(a * b));
  EXPECT_TRUE(results[0].toTensor().is_contiguous());
}

} // namespace
} // namespace lazyplug
