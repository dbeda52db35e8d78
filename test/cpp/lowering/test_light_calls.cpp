#include "lowering/light_calls.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "programs.h"

namespace lazyplug {
namespace {

float work_of_call(const OpInfo& op, std::vector<Geometry> operands, const Geometry& output) {
  const std::vector<ArgBinding> args(operands.size(), an_operand());
  const SignaturePtr made = make_signature(op, args, {output});
  Signature signature;
  signature.op = made->op;
  signature.outputs = made->outputs;
  signature.operands = std::move(operands);
  return light_work(signature);
}

float relu_work(int64_t size) {
  return work_of_call(make_op("aten::relu"), {floats({size})}, floats({size}));
}

TEST(LightCalls, PointwiseCallsAreLightBelowTheGrainOfParallelLoops) {
  EXPECT_EQ(relu_work(at::internal::GRAIN_SIZE - 1), 0);
  EXPECT_GT(relu_work(at::internal::GRAIN_SIZE), light_limit(1));
}

TEST(LightCalls, CallsOnListsAreMeasuredByAllTheirTensors) {
  const OpInfo& sqrt = make_op("aten::_foreach_sqrt");
  EXPECT_EQ(work_of_call(sqrt, {floats({100}), floats({100})}, floats({100})), 0);
  const Geometry half = floats({at::internal::GRAIN_SIZE / 2});
  EXPECT_GT(work_of_call(sqrt, {half, half}, floats({1})), light_limit(1));
}

// Two threads pay for these.
TEST(LightCalls, TransformsAreHeavyFromAFewThousandElementsOn) {
  const auto transform = [](int64_t size) {
    return work_of_call(make_op("aten::_fft_c2c"), {floats({size, size})}, floats({size, size}));
  };
  EXPECT_LE(transform(32), light_limit(2));
  EXPECT_GT(transform(64), light_limit(2));
}

TEST(LightCalls, ProductsAreMeasuredByTheirMultiplications) {
  const OpInfo& mm = make_op("aten::mm");
  EXPECT_FLOAT_EQ(work_of_call(mm, {floats({16, 64}), floats({64, 100})}, floats({16, 100})), 16 * 64 * 100);
  EXPECT_LE(work_of_call(mm, {floats({16, 64}), floats({64, 256})}, floats({16, 256})), light_limit(2));
  EXPECT_GT(work_of_call(mm, {floats({128, 64}), floats({64, 64})}, floats({128, 64})), light_limit(2));
}

TEST(LightCalls, ProductsAreMeasuredTheSameWithoutTheirResults) {
  const auto on_cpu = [](std::vector<int64_t> sizes) { return c10::IValue(at::zeros(sizes)); };
  EXPECT_EQ(product_work(make_op("aten::mm"), {on_cpu({16, 64}), on_cpu({64, 100})}), 16 * 64 * 100);
  EXPECT_EQ(product_work(make_op("aten::addmm"), {on_cpu({5}), on_cpu({2, 3}), on_cpu({3, 5})}), 2 * 3 * 5);
  EXPECT_EQ(product_work(make_op("aten::bmm"), {on_cpu({7, 2, 3}), on_cpu({7, 3, 5})}), 7 * 2 * 3 * 5);
  EXPECT_EQ(product_work(make_op("aten::mv"), {on_cpu({4, 6}), on_cpu({6})}), 4 * 6);
  EXPECT_EQ(product_work(make_op("aten::dot"), {on_cpu({6}), on_cpu({6})}), 6);
  EXPECT_EQ(product_work(make_op("aten::addmm_"), {on_cpu({2, 5}), on_cpu({2, 3}), on_cpu({3, 5})}), 2 * 3 * 5);
  EXPECT_EQ(product_work(make_op("aten::relu"), {on_cpu({5})}), std::nullopt);
}

TEST(LightCalls, ProductsOfEmptyMatricesAreLight) {
  EXPECT_EQ(product_work(make_op("aten::mm"), {at::zeros({16, 0}), at::zeros({0, 10})}), 0);
}

TEST(LightCalls, AProductWithALargeResultIsNotLight) {
  EXPECT_GT(product_work(make_op("aten::mm"), {at::zeros({200, 1}), at::zeros({1, 200})}), light_limit(1));
}

TEST(LightCalls, ThreadsOfACallAreThoseOfAGraph) {
  IntraOpThreadsScope test;
  test.use(2);
  const OpInfo& mm = make_op("aten::mm");
  {
    const std::vector<c10::IValue> light{at::zeros({16, 64}), at::zeros({64, 100})};
    const ThreadsOfCall scope(mm, light);
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 2);
  const std::vector<c10::IValue> heavy{at::zeros({128, 128}), at::zeros({128, 128})};
  const ThreadsOfCall scope(mm, heavy);
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(LightCalls, AreFewerTheMoreThreadsThereAre) {
  EXPECT_EQ(light_limit(1), light_limit(2));
  EXPECT_EQ(light_limit(8), light_limit(2) / 4);
}

TEST(LightCalls, ResultsThatDependOnThreadsAndOpsOfOthersAreHeavy) {
  const OpInfo& dependent = make_op("aten::native_layer_norm_backward");
  EXPECT_GT(work_of_call(dependent, {floats({2})}, floats({2})), light_limit(1));
  EXPECT_GT(work_of_call(make_op("aten::native_layer_norm"), {floats({2})}, floats({2})), light_limit(1));
  EXPECT_GT(work_of_call(make_op("aten::geqrf"), {floats({2})}, floats({2})), light_limit(1));
  EXPECT_EQ(work_of_call(make_op("aten::sqrt"), {floats({2})}, floats({2})), 0) << "holds the letters of another op";
  EXPECT_EQ(work_of_call(make_op("aten::gelu_backward"), {floats({2})}, floats({2})), 0);
  const OpInfo& foreign = make_op("lazyplug_test::watch");
  EXPECT_GT(work_of_call(foreign, {floats({2})}, floats({2})), light_limit(1));
}

} // namespace
} // namespace lazyplug
