#include "lowering/calls/light_calls.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "test/cpp/lowering/programs.h"

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

c10::IValue on_cpu(std::vector<int64_t> sizes) {
  return at::zeros(sizes);
}

TEST(LightCalls, PointwiseCallsAreLightUpToTheGrainOfParallelLoops) {
  EXPECT_EQ(relu_work(at::internal::GRAIN_SIZE), 0);
  EXPECT_GT(relu_work(at::internal::GRAIN_SIZE + 1), light_limit(1));
}

TEST(LightCalls, CallsOnListsAreMeasuredByTheirLargestTensorAndAllOfThem) {
  const OpInfo& sqrt = make_op("aten::_foreach_sqrt");
  EXPECT_EQ(work_of_call(sqrt, {floats({100}), floats({100})}, floats({100})), 0);
  const Geometry grain = floats({at::internal::GRAIN_SIZE});
  EXPECT_EQ(work_of_call(sqrt, {grain, grain}, floats({1})), 0);
  EXPECT_GT(work_of_call(sqrt, {floats({at::internal::GRAIN_SIZE + 1})}, floats({1})), light_limit(1));
  EXPECT_GT(work_of_call(sqrt, std::vector<Geometry>(9, grain), floats({1})), light_limit(1));
}

// Two threads pay for these.
TEST(LightCalls, TransformsAreHeavyFromAFewThousandElementsOn) {
  const auto transform = [](int64_t size) {
    return work_of_call(make_op("aten::_fft_c2c"), {floats({size, size})}, floats({size, size}));
  };
  EXPECT_LE(transform(32), light_limit(2));
  EXPECT_GT(transform(64), light_limit(2));
}

TEST(LightCalls, TransformsAndAttentionAreMeasuredTheSameWithoutTheirResults) {
  const OpInfo& transform = make_op("aten::_fft_r2c");
  EXPECT_EQ(work_at_once(transform, {on_cpu({25, 32})}), work_of_call(transform, {floats({25, 32})}, floats({25, 17})));
  const OpInfo& attention = make_op("aten::_scaled_dot_product_flash_attention_for_cpu");
  const Geometry queries = floats({1, 1, 5, 64});
  const auto work = work_at_once(attention, {on_cpu({1, 1, 5, 64}), on_cpu({1, 1, 5, 64}), on_cpu({1, 1, 5, 64})});
  EXPECT_EQ(work, work_of_call(attention, {queries, queries, queries}, queries));
  EXPECT_LE(work, light_limit(2));
  const OpInfo& layer = make_op("aten::_transformer_encoder_layer_fwd");
  EXPECT_GT(work_at_once(layer, {on_cpu({1, 5, 64})}), light_limit(2)) << "its weights are not among the first";
}

TEST(LightCalls, ProductsAreMeasuredByTheirMultiplications) {
  const OpInfo& mm = make_op("aten::mm");
  EXPECT_FLOAT_EQ(work_of_call(mm, {floats({16, 64}), floats({64, 100})}, floats({16, 100})), 16 * 64 * 100);
  EXPECT_LE(work_of_call(mm, {floats({16, 64}), floats({64, 256})}, floats({16, 256})), light_limit(2));
  EXPECT_GT(work_of_call(mm, {floats({128, 128}), floats({128, 128})}, floats({128, 128})), light_limit(2));
}

TEST(LightCalls, ProductsAreMeasuredTheSameWithoutTheirResults) {
  EXPECT_EQ(work_at_once(make_op("aten::mm"), {on_cpu({16, 64}), on_cpu({64, 100})}), 16 * 64 * 100);
  EXPECT_EQ(work_at_once(make_op("aten::addmm"), {on_cpu({5}), on_cpu({2, 3}), on_cpu({3, 5})}), 2 * 3 * 5);
  EXPECT_EQ(work_at_once(make_op("aten::bmm"), {on_cpu({7, 2, 3}), on_cpu({7, 3, 5})}), 7 * 2 * 3 * 5);
  EXPECT_EQ(work_at_once(make_op("aten::mv"), {on_cpu({4, 6}), on_cpu({6})}), 4 * 6);
  EXPECT_EQ(work_at_once(make_op("aten::dot"), {on_cpu({6}), on_cpu({6})}), 6);
  EXPECT_EQ(work_at_once(make_op("aten::addmm_"), {on_cpu({2, 5}), on_cpu({2, 3}), on_cpu({3, 5})}), 2 * 3 * 5);
  EXPECT_EQ(work_at_once(make_op("aten::relu"), {on_cpu({5})}), std::nullopt);
}

TEST(LightCalls, ProductsOfEmptyMatricesAreLight) {
  EXPECT_EQ(work_at_once(make_op("aten::mm"), {at::zeros({16, 0}), at::zeros({0, 10})}), 0);
}

TEST(LightCalls, AProductWithALargeResultIsNotLight) {
  EXPECT_GT(work_at_once(make_op("aten::mm"), {at::zeros({200, 1}), at::zeros({1, 200})}), light_limit(1));
}

// By those that there would be with a stride of 1.
TEST(LightCalls, ConvolutionsAreMeasuredByTheirMultiplicationsWithoutTheirResults) {
  const OpInfo& convolution = make_op("aten::convolution");
  const OpInfo& backward = make_op("aten::convolution_backward");
  const float expected = 8 * 16 * 10 * 10 * 32 * 3 * 3 / 2;
  const auto images = floats({8, 16, 10, 10});
  const auto filters = floats({32, 16, 3, 3});
  const auto result = floats({8, 32, 10, 10});
  EXPECT_FLOAT_EQ(work_of_call(convolution, {images, filters}, result), expected);
  EXPECT_FLOAT_EQ(work_of_call(backward, {result, images, filters}, images), expected);
  EXPECT_EQ(work_at_once(convolution, {on_cpu({8, 16, 10, 10}), on_cpu({32, 16, 3, 3})}), expected);
  EXPECT_EQ(
      work_at_once(backward, {on_cpu({8, 32, 10, 10}), on_cpu({8, 16, 10, 10}), on_cpu({32, 16, 3, 3})}),
      expected);
  EXPECT_LE(expected, 2 * light_limit(2));
  EXPECT_GT(
      work_of_call(convolution, {floats({8, 64, 16, 16}), floats({64, 64, 3, 3})}, floats({8, 64, 16, 16})),
      light_limit(2));
}

TEST(LightCalls, ConvolutionsOfChannelsAloneHaveFewMultiplications) {
  const auto depthwise = work_at_once(make_op("aten::convolution"), {on_cpu({8, 64, 8, 8}), on_cpu({64, 1, 3, 3})});
  EXPECT_EQ(depthwise, 8 * 64 * 8 * 8 * 3 * 3 / 2);
}

TEST(LightCalls, ConvolutionsOfNothingAreNotMeasured) {
  EXPECT_GT(work_at_once(make_op("aten::convolution"), {on_cpu({8, 0, 8, 8}), on_cpu({64, 0, 3, 3})}), light_limit(1));
}

TEST(LightCalls, MatricesThatAreDecomposedAreLightIfTheyAreSmall) {
  const OpInfo& cholesky = make_op("aten::linalg_cholesky_ex");
  EXPECT_LE(work_of_call(cholesky, {floats({60, 60})}, floats({60, 60})), light_limit(2));
  EXPECT_GT(work_of_call(cholesky, {floats({100, 100})}, floats({100, 100})), light_limit(2));
  EXPECT_EQ(
      work_at_once(cholesky, {on_cpu({60, 60}), false, false}),
      work_of_call(cholesky, {floats({60, 60})}, floats({60, 60})));
  EXPECT_EQ(work_of_call(make_op("aten::linalg_vector_norm"), {floats({100, 100})}, floats({})), 0);
}

TEST(LightCalls, WhereMatricesGoDoesNotCount) {
  const OpInfo& svd = make_op("aten::linalg_svd", "U");
  const auto work =
      work_at_once(svd, {on_cpu({60, 8}), true, c10::IValue(), on_cpu({600, 600}), on_cpu({8}), on_cpu({8, 8})});
  EXPECT_EQ(
      work,
      work_at_once(svd, {on_cpu({60, 8}), true, c10::IValue(), on_cpu({60, 60}), on_cpu({8}), on_cpu({8, 8})}));
  const std::vector<Geometry> operands{floats({60, 8}), floats({600, 600}), floats({8}), floats({8, 8})};
  EXPECT_EQ(work, work_of_call(svd, operands, floats({60, 60})));
  const OpInfo& inverse = make_op("aten::linalg_inv_ex", "inverse");
  EXPECT_LE(work_at_once(inverse, {on_cpu({60, 60}), false, on_cpu({600, 600}), on_cpu({})}), light_limit(2));
}

TEST(LightCalls, NormsAreLightUpToTheGrainOfParallelLoops) {
  const OpInfo& norm = make_op("aten::native_layer_norm");
  const int64_t rows = at::internal::GRAIN_SIZE / 16;
  EXPECT_EQ(work_of_call(norm, {floats({rows, 16}), floats({16})}, floats({rows, 16})), 0);
  EXPECT_EQ(work_at_once(norm, {on_cpu({rows, 16})}), 0);
  EXPECT_GT(work_of_call(norm, {floats({rows + 1, 16}), floats({16})}, floats({rows + 1, 16})), light_limit(1));
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

TEST(LightCalls, WhatHasThreadsOfItsOwnAndOpsOfOthersAreHeavy) {
  EXPECT_GT(work_of_call(make_op("aten::mkldnn_rnn_layer"), {floats({2})}, floats({2})), light_limit(1));
  EXPECT_EQ(work_of_call(make_op("aten::sqrt"), {floats({2})}, floats({2})), 0) << "holds the letters of another op";
  EXPECT_EQ(work_of_call(make_op("aten::gelu_backward"), {floats({2})}, floats({2})), 0);
  const OpInfo& foreign = make_op("lazyplug_test::watch");
  EXPECT_GT(work_of_call(foreign, {floats({2})}, floats({2})), light_limit(1));
}

} // namespace
} // namespace lazyplug
