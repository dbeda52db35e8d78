#include "lowering/light_calls.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "programs.h"

namespace lazyplug {
namespace {

float work_of(const OpInfo& op, std::vector<Geometry> operands, const Geometry& output) {
  const std::vector<ArgBinding> args(operands.size(), an_operand());
  const SignaturePtr made = make_signature(op, args, {output});
  Signature signature;
  signature.op = made->op;
  signature.outputs = made->outputs;
  signature.operands = std::move(operands);
  return light_work(signature);
}

float relu_work(int64_t size) {
  return work_of(make_op("aten::relu"), {floats({size})}, floats({size}));
}

TEST(LightCalls, PointwiseCallsAreLightBelowTheGrainOfParallelLoops) {
  EXPECT_EQ(relu_work(at::internal::GRAIN_SIZE - 1), 0);
  EXPECT_GT(relu_work(at::internal::GRAIN_SIZE), light_limit(1));
}

TEST(LightCalls, CallsOnListsAreMeasuredByAllTheirTensors) {
  const OpInfo& sqrt = make_op("aten::_foreach_sqrt");
  EXPECT_EQ(work_of(sqrt, {floats({100}), floats({100})}, floats({100})), 0);
  const Geometry half = floats({at::internal::GRAIN_SIZE / 2});
  EXPECT_GT(work_of(sqrt, {half, half}, floats({1})), light_limit(1));
}

TEST(LightCalls, ProductsAreMeasuredByTheirMultiplications) {
  const OpInfo& mm = make_op("aten::mm");
  EXPECT_FLOAT_EQ(work_of(mm, {floats({16, 64}), floats({64, 100})}, floats({16, 100})), 16 * 64 * 100);
  EXPECT_LE(work_of(mm, {floats({16, 64}), floats({64, 256})}, floats({16, 256})), light_limit(2));
  EXPECT_GT(work_of(mm, {floats({128, 64}), floats({64, 64})}, floats({128, 64})), light_limit(2));
}

TEST(LightCalls, AreFewerTheMoreThreadsThereAre) {
  EXPECT_EQ(light_limit(1), light_limit(2));
  EXPECT_EQ(light_limit(8), light_limit(2) / 4);
}

TEST(LightCalls, ResultsThatDependOnThreadsAndOpsOfOthersAreHeavy) {
  const OpInfo& dependent = make_op("aten::native_layer_norm_backward");
  EXPECT_GT(work_of(dependent, {floats({2})}, floats({2})), light_limit(1));
  EXPECT_GT(work_of(make_op("aten::native_layer_norm"), {floats({2})}, floats({2})), light_limit(1));
  EXPECT_GT(work_of(make_op("aten::geqrf"), {floats({2})}, floats({2})), light_limit(1));
  EXPECT_EQ(work_of(make_op("aten::sqrt"), {floats({2})}, floats({2})), 0) << "holds the letters of another op";
  EXPECT_EQ(work_of(make_op("aten::gelu_backward"), {floats({2})}, floats({2})), 0);
  const OpInfo& foreign = make_op("lazyplug_test::watch");
  EXPECT_GT(work_of(foreign, {floats({2})}, floats({2})), light_limit(1));
}

} // namespace
} // namespace lazyplug
