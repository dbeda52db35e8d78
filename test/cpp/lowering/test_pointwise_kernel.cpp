#include "lowering/pointwise_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/interpreter.h>

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

  const std::shared_ptr<torch::jit::Graph> graph = std::make_shared<torch::jit::Graph>();
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
