#include "lowering/calls/image_kernels.h"

#include <ATen/ATen.h>

#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

constexpr const char* kImageOp = "aten::max_pool2d_with_indices";

c10::Stack constants(
    std::vector<int64_t> window,
    std::vector<int64_t> stride,
    std::vector<int64_t> padding,
    std::vector<int64_t> step = {1},
    bool ceil_mode = false) {
  return {c10::IValue(window), c10::IValue(stride), c10::IValue(padding), c10::IValue(step), ceil_mode};
}

c10::Stack with(const at::Tensor& input, const c10::Stack& constants) {
  c10::Stack stack{input};
  stack.insert(stack.end(), constants.begin(), constants.end());
  return stack;
}

class ImageKernelsTest : public NodeTest {
 protected:
  ImageKernelsTest() : NodeTest(exact_kernel) {}
};

bool is_computed(const at::Tensor& input, const c10::Stack& constants) {
  c10::Stack stack = with(input, constants);
  const size_t size = stack.size();
  const bool is_computed = run_exact_kernel(make_op(kImageOp), stack);
  EXPECT_EQ(stack.size(), is_computed ? 2 : size);
  return is_computed;
}

TEST_F(ImageKernelsTest, ComputesWhatPyTorchComputes) {
  const auto in_channels_last = [](const at::Tensor& image) {
    return image.contiguous(at::MemoryFormat::ChannelsLast);
  };
  for (const auto& input :
       {at::randn({2, 3, 9, 12}),
        at::randn({3, 9, 12}),
        at::randn({1, 1, 6, 6}).round(),
        in_channels_last(at::randn({2, 3, 9, 12})),
        in_channels_last(at::randn({2, 40, 9, 12}).round()),
        in_channels_last(at::randn({2, 1, 9, 12})),
        in_channels_last(at::randn({2, 5, 1, 3})),
        at::randn({2, 5, 1, 1}).as_strided({2, 5, 1, 1}, {5, 1, 5, 5})}) {
    for (const bool ceil_mode : {false, true}) {
      for (const auto& arguments :
           {constants({2}, {}, {1}, {1}, ceil_mode),
            constants({2, 3}, {2}, {1, 0}, {1}, ceil_mode),
            constants({3}, {1, 2}, {1}, {2, 1}, ceil_mode)}) {
        c10::Stack ours = with(input, arguments);
        c10::Stack expected = ours;
        if (!run_exact_kernel(make_op(kImageOp), ours)) {
          EXPECT_THROW(make_op(kImageOp).handle().callBoxed(expected), c10::Error) << input.sizes();
          continue;
        }
        make_op(kImageOp).handle().callBoxed(expected);
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(ours[i].toTensor().equal(expected[i].toTensor())) << i;
          EXPECT_EQ(ours[i].toTensor().strides(), expected[i].toTensor().strides());
        }
      }
    }
  }
}

TEST_F(ImageKernelsTest, LeavesTheRestToPyTorch) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  const auto arguments = constants({2}, {2}, {0});
  EXPECT_FALSE(is_computed(input.to(at::kDouble), arguments));
  EXPECT_FALSE(is_computed(input.transpose(2, 3), arguments));
  EXPECT_FALSE(is_computed(at::randn({0, 3, 8, 8}), arguments));
  EXPECT_FALSE(is_computed(at::randn({8, 8}), arguments));
  EXPECT_FALSE(is_computed(input, constants({8}, {8}, {0}))) << "one window in a row";
  EXPECT_FALSE(is_computed(at::randn({1, 1, 64, 64}), constants({8}, {8}, {0}))) << "windows far apart";
  EXPECT_FALSE(is_computed(input, constants({2}, {1 << 20}, {0})));
  EXPECT_FALSE(is_computed(input, constants({2}, {2}, {2})));
  EXPECT_FALSE(is_computed(input, constants({0}, {2}, {0})));
  EXPECT_FALSE(is_computed(input, constants({2}, {2}, {0}, {0})));
  EXPECT_FALSE(is_computed(input, constants({2}, {2, 2, 2}, {0})));
  expect_same(kImageOp, "", input.transpose(2, 3), constants({2}, {2}, {0}));
}

TEST_F(ImageKernelsTest, FindsNoPlacesThatNobodyReads) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  const auto kernel = kernel_of(kImageOp, "", input, constants({2}, {2}, {0}));
  ASSERT_TRUE(kernel);
  kernel(stack_);
  ASSERT_EQ(stack_.size(), 2);
  EXPECT_TRUE(stack_[0].toTensor().equal(at::max_pool2d(input, {2})));
  EXPECT_FALSE(stack_[1].toTensor().defined());
}

TEST_F(ImageKernelsTest, FindsMeansAsPyTorchDoes) {
  constexpr const char* kMean = "aten::avg_pool2d";
  const c10::IValue none;
  const at::Tensor images = at::randn({2, 3, 9, 12});
  for (const auto& image : {images, images[0], images.contiguous(at::MemoryFormat::ChannelsLast)}) {
    for (const bool counts_padding : {false, true}) {
      const auto of = [&](std::vector<int64_t> window, std::vector<int64_t> stride, std::vector<int64_t> padding) {
        return c10::Stack{c10::IValue(window), c10::IValue(stride), c10::IValue(padding), true, counts_padding, none};
      };
      expect_same(kMean, "", image, of({2}, {}, {0}));
      expect_same(kMean, "", image, of({3, 2}, {2}, {1}));
    }
  }
  const c10::IValue two = c10::List<int64_t>({2});
  c10::Stack overridden{images, two, two, c10::List<int64_t>({0}), false, true, 3};
  EXPECT_FALSE(run_exact_kernel(make_op(kMean), overridden));
}

constexpr const char* kUpsample = "aten::upsample_nearest2d";

TEST_F(ImageKernelsTest, UpsamplesAsPyTorchDoes) {
  const c10::IValue none;
  for (const int64_t in : {1, 2, 5, 10, 33}) {
    const at::Tensor image = at::randn({2, 3, in, in + 1});
    for (const int64_t out : {1, 3, 10, 20, 21, 66, 100}) {
      expect_same(kUpsample, "", image, {c10::IValue(std::vector<int64_t>{out, out + 2}), none, none});
    }
    for (const double scale : {0.4, 1.0, 1.5, 2.0, 2.05, 3.7}) {
      const auto size = [&](int64_t from) { return std::max<int64_t>(1, static_cast<int64_t>(from * scale)); };
      const c10::IValue sizes(std::vector<int64_t>{size(in), size(in + 1)});
      expect_same(kUpsample, "", image, {sizes, scale, scale});
    }
  }
}

TEST_F(ImageKernelsTest, LeavesOtherImagesToPyTorch) {
  const auto is_upsampled = [](const at::Tensor& image, std::vector<int64_t> sizes) {
    c10::Stack stack{image, c10::IValue(std::move(sizes)), c10::IValue(), c10::IValue()};
    return run_exact_kernel(make_op(kUpsample), stack);
  };
  const at::Tensor image = at::randn({2, 3, 4, 4});
  EXPECT_TRUE(is_upsampled(image, {8, 8}));
  EXPECT_FALSE(is_upsampled(image, {8, 0}));
  EXPECT_FALSE(is_upsampled(image, {8}));
  EXPECT_FALSE(is_upsampled(image.to(at::kDouble), {8, 8}));
  EXPECT_FALSE(is_upsampled(image.transpose(2, 3), {8, 8}));
  EXPECT_FALSE(is_upsampled(image.contiguous(at::MemoryFormat::ChannelsLast), {8, 8}));
}

} // namespace
} // namespace lazyplug
