#include "lowering/calls/convolution_kernel.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <limits>

#include "kernels/tile_loops.h"
#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

const c10::IValue kNoBias;

c10::Stack arguments(
    const at::Tensor& images,
    const at::Tensor& filters,
    const c10::IValue& bias = kNoBias,
    const std::vector<int64_t>& stride = {1, 1},
    const std::vector<int64_t>& padding = {1, 1},
    bool is_transposed = false,
    int64_t groups = 1) {
  const std::vector<int64_t> ones(images.dim() - 2, 1);
  const std::vector<int64_t> zeros(images.dim() - 2, 0);
  return {images, filters, bias, stride, padding, ones, is_transposed, zeros, groups};
}

c10::Stack arguments_of_gradient(const at::Tensor& gradient, const c10::Stack& forward, std::vector<bool> mask) {
  c10::Stack stack{gradient, forward[0], forward[1], std::vector<int64_t>{forward[1].toTensor().size(0)}};
  stack.insert(stack.end(), forward.begin() + 3, forward.end());
  c10::List<bool> outputs;
  for (const bool wanted : mask) {
    outputs.push_back(wanted);
  }
  stack.emplace_back(outputs);
  return stack;
}

class ConvolutionKernelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::loops<float>().convolve) {
      GTEST_SKIP() << "this target has no kernel for convolutions";
    }
  }

  const ScopedFlag<int64_t> fusion_{config().fusion, 3}; // at 2, forms are not tried when they come again, but at once

  // Whether the second call is ours. Both, or PyTorch's instead, have PyTorch's results.
  static bool is_ours(const char* name, const c10::Stack& arguments) {
    const OpInfo& op = make_op(name);
    c10::Stack expected = arguments;
    op.handle().callBoxed(expected);
    bool is_ours = false;
    for (int i = 0; i < 2; ++i) {
      c10::Stack stack = arguments;
      is_ours = run_exact_kernel(op, stack);
      if (!is_ours) {
        EXPECT_EQ(stack.size(), arguments.size());
        continue;
      }
      EXPECT_EQ(i, 1) << "a form that comes for the first time";
      EXPECT_EQ(stack.size(), expected.size());
      for (size_t j = 0; j < stack.size(); ++j) {
        const at::Tensor& result = stack[j].toTensor();
        EXPECT_EQ(result.defined(), expected[j].toTensor().defined());
        EXPECT_TRUE(!result.defined() || result.equal(expected[j].toTensor()));
        EXPECT_TRUE(!result.defined() || result.strides() == expected[j].toTensor().strides());
      }
    }
    return is_ours;
  }
};

TEST_F(ConvolutionKernelTest, HasTheBitsOfPyTorch) {
  const at::Tensor images = at::randn({4, 20, 12, 13});
  const at::Tensor filters = at::randn({18, 20, 3, 3});
  const at::Tensor bias = at::randn({18});
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters)));
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters, bias)));
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters, bias, {2, 1}, {0, 1})));
  EXPECT_TRUE(
      is_ours("aten::convolution", arguments(at::randn({4, 1, 28, 28}), at::randn({6, 1, 5, 5}), at::randn({6}))));
  EXPECT_TRUE(is_ours("aten::convolution", arguments(at::randn({8, 6, 40}), at::randn({7, 6, 3}), kNoBias, {1}, {1})));
  EXPECT_TRUE(
      is_ours("aten::convolution", arguments(at::randn({16, 32, 50}), at::randn({20, 32, 3}), kNoBias, {1}, {1})));
}

TEST_F(ConvolutionKernelTest, SoHaveGradients) {
  const OpInfo& op = make_op("aten::convolution_backward");
  const at::Tensor images = at::randn({4, 20, 12, 14});
  const at::Tensor filters = at::randn({18, 20, 3, 3});
  for (const int64_t padding : {0, 1, 2}) {
    // Where windows have no room for more padding, oneDNN has another order for AVX2, beyond one block of channels.
    const bool has_input_here = padding < 2 || kernels::loops<float>().num_lanes != 8;
    const auto forward = arguments(images, filters, kNoBias, {1, 1}, {padding, padding});
    const at::Tensor gradient = at::randn({4, 18, 10 + 2 * padding, 12 + 2 * padding});
    for (const auto& mask : {std::vector<bool>{true, false, false}, {false, true, false}, {false, true, true}}) {
      const bool is_ours_then = is_ours("aten::convolution_backward", arguments_of_gradient(gradient, forward, mask));
      EXPECT_EQ(is_ours_then, !mask[0] || has_input_here) << mask;
    }
    for (const auto& mask : {std::vector<bool>{true, true, true}, {true, false, true}}) {
      c10::Stack stack = arguments_of_gradient(gradient, forward, mask);
      c10::Stack expected = stack;
      ASSERT_EQ(run_exact_kernel(op, stack), mask[1] || has_input_here) << "the bias alone is PyTorch's";
      if (!mask[1] && !has_input_here) {
        continue;
      }
      op.handle().callBoxed(expected);
      ASSERT_EQ(stack.size(), 3);
      for (size_t i = 0; i < 3; ++i) {
        const at::Tensor& other = expected[i].toTensor();
        ASSERT_EQ(stack[i].toTensor().defined(), other.defined()) << i;
        EXPECT_TRUE(!other.defined() || stack[i].toTensor().equal(other)) << i;
      }
    }
  }
  const auto full = arguments(images, at::randn({8, 20, 3, 3}), kNoBias, {1, 1}, {2, 2});
  const auto of_images = arguments_of_gradient(at::randn({4, 8, 14, 16}), full, {true, false, false});
  EXPECT_TRUE(is_ours("aten::convolution_backward", of_images));
  const auto wide = arguments(at::randn({4, 20, 12, 14}), filters, kNoBias, {2, 2});
  const auto of_filters = arguments_of_gradient(at::randn({4, 18, 6, 7}), wide, {false, true, false});
  EXPECT_TRUE(is_ours("aten::convolution_backward", of_filters));
  const auto of_input = arguments_of_gradient(at::randn({4, 18, 6, 7}), wide, {true, false, false});
  EXPECT_FALSE(is_ours("aten::convolution_backward", of_input));
}

// oneDNN leaves out what lies beyond an image; here it is a zero that is multiplied.
TEST_F(ConvolutionKernelTest, InfinitiesBesidePaddingArePyTorchs) {
  const auto with_infinity = [](at::Tensor tensor) {
    tensor.view(-1)[7] = std::numeric_limits<float>::infinity();
    return tensor;
  };
  const at::Tensor images = at::randn({3, 8, 12, 15});
  const at::Tensor filters = at::randn({8, 8, 3, 3});
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters)));
  EXPECT_FALSE(is_ours("aten::convolution", arguments(images, with_infinity(filters.clone()))));
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters, kNoBias, {1, 1}, {0, 0})));
  c10::Stack unpadded = arguments(images, with_infinity(filters.clone()), kNoBias, {1, 1}, {0, 0});
  EXPECT_TRUE(run_exact_kernel(make_op("aten::convolution"), unpadded));
  const at::Tensor gradient = at::randn({3, 8, 12, 15});
  for (const auto& mask : {std::vector<bool>{true, false, false}, {false, true, false}}) {
    const char* const name = "aten::convolution_backward";
    EXPECT_TRUE(is_ours(name, arguments_of_gradient(gradient, arguments(images, filters), mask)));
    const auto infinite = arguments_of_gradient(
        with_infinity(gradient.clone()),
        arguments(images, mask[0] ? with_infinity(filters.clone()) : filters),
        mask);
    c10::Stack stack = infinite;
    EXPECT_FALSE(run_exact_kernel(make_op(name), stack));
  }
}

TEST_F(ConvolutionKernelTest, LeavesTheRestToPyTorch) {
  const at::Tensor images = at::randn({4, 8, 12, 16});
  const at::Tensor filters = at::randn({8, 8, 3, 3});
  const auto in_channels_last = [](const at::Tensor& tensor) {
    return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  };
  EXPECT_TRUE(is_ours("aten::convolution", arguments(images, filters)));
  EXPECT_FALSE(is_ours("aten::convolution", arguments(in_channels_last(images), filters)));
  EXPECT_FALSE(is_ours("aten::convolution", arguments(images, in_channels_last(filters))));
  EXPECT_FALSE(is_ours("aten::convolution", arguments(images.transpose(2, 3), filters)));
  EXPECT_FALSE(is_ours("aten::convolution", arguments(images.to(at::kDouble), filters.to(at::kDouble))));
  EXPECT_FALSE(
      is_ours("aten::convolution", arguments(images, filters, kNoBias, {1, 1}, {1, 1}, /*is_transposed=*/true)));
  EXPECT_FALSE(
      is_ours("aten::convolution", arguments(images, at::randn({8, 4, 3, 3}), kNoBias, {1, 1}, {1, 1}, false, 2)));
  EXPECT_FALSE(is_ours(
      "aten::convolution",
      arguments(at::randn({2, 8, 4, 5, 6}), at::randn({8, 8, 3, 3, 3}), kNoBias, {1}, {1})));
  const at::Tensor odd = at::randn({3, 6, 1}).transpose(1, 2); // whose result lies as if channels were last
  EXPECT_FALSE(is_ours("aten::convolution", arguments(odd, at::randn({4, 1, 2}), kNoBias, {1}, {1})));
  c10::Stack refused = arguments(images, filters, kNoBias, std::vector<int64_t>{});
  EXPECT_FALSE(run_exact_kernel(make_op("aten::convolution"), refused));
}

TEST_F(ConvolutionKernelTest, AsksAgainWithoutTheLibrary) {
  const auto call = arguments(at::randn({3, 40, 12, 12}), at::randn({16, 40, 3, 3}));
  EXPECT_TRUE(is_ours("aten::convolution", call));
  at::globalContext().setUserEnabledMkldnn(false);
  is_ours("aten::convolution", call); // another form: PyTorch's own kernel may sum up otherwise, which depends on BLAS
  at::globalContext().setUserEnabledMkldnn(true);
  c10::Stack stack = call;
  EXPECT_TRUE(run_exact_kernel(make_op("aten::convolution"), stack));
}

TEST_F(ConvolutionKernelTest, NotWhereOperandsMayBeRounded) {
  const auto call = arguments(at::randn({3, 20, 12, 12}), at::randn({16, 20, 3, 3}));
  EXPECT_TRUE(is_ours("aten::convolution", call));
  auto& context = at::globalContext();
  context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV, at::Float32Precision::BF16);
  c10::Stack stack = call;
  EXPECT_FALSE(run_exact_kernel(make_op("aten::convolution"), stack));
  context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV, at::Float32Precision::NONE);
  EXPECT_TRUE(run_exact_kernel(make_op("aten::convolution"), stack));
}

TEST_F(ConvolutionKernelTest, TriesAtOnceWhereThatIsTested) {
  const ScopedFlag<int64_t> fusion(config().fusion, 2);
  c10::Stack stack = arguments(at::randn({5, 20, 12, 12}), at::randn({17, 20, 3, 3}));
  EXPECT_TRUE(run_exact_kernel(make_op("aten::convolution"), stack));
}

} // namespace
} // namespace lazyplug
