#include "kernels/convolution.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/tile_loops.h"
#include "test/cpp/kernels/convolutions.h"

namespace lazyplug::kernels {
namespace {

using Order = Convolution::Order;

// Summed up as the header says.
float sum_of_window(const Convolution& convolution, int64_t image, int64_t channel, int64_t row, int64_t column) {
  const auto& [rows, columns] = std::tie(convolution.rows, convolution.columns);
  const auto add = [&](int64_t in, int64_t i, int64_t j, float sum) {
    const bool is_gradient = convolution.is_gradient;
    const int64_t in_row = rows.begin_of(row) + (is_gradient ? rows.window - 1 - i : i) * rows.step;
    const int64_t in_column = columns.begin_of(column) + (is_gradient ? columns.window - 1 - j : j) * columns.step;
    if (in_row < 0 || in_row >= rows.in_size || in_column < 0 || in_column >= columns.in_size) {
      return sum;
    }
    const int64_t filter =
        is_gradient ? in * convolution.out_channels + channel : channel * convolution.in_channels + in;
    const float* plane = convolution.images + (image * convolution.in_channels + in) * convolution.in_plane();
    return std::fma(
        convolution.filters[(filter * rows.window + i) * columns.window + j],
        plane[in_row * columns.in_size + in_column],
        sum);
  };
  const int64_t size = convolution.filter_size();
  const float bias = convolution.bias ? convolution.bias[channel] : 0;
  const bool is_running = convolution.order == Order::kRunning;
  const int64_t block = is_running ? 8
                        : convolution.order == Order::kBlocks && size > 1 && convolution.in_channels > 16
                            ? 16
                            : convolution.in_channels;
  float total = is_running ? bias : 0;
  for (int64_t first = 0; first < convolution.in_channels; first += block) {
    const int64_t channels = std::min(convolution.in_channels - first, block);
    float sum = is_running ? total : 0;
    for (int64_t k = 0; k < channels * size; ++k) {
      const bool is_chain = convolution.order == Order::kChain;
      const int64_t in = is_chain ? k / size : k % channels;
      const int64_t element = is_chain ? k % size : k / channels;
      sum = add(first + in, element / columns.window, element % columns.window, sum);
    }
    total = is_running ? sum : first == 0 ? sum + bias : total + sum;
  }
  return total;
}

class ConvolutionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!loops<float>().convolve) {
      GTEST_SKIP() << "this target has no kernel for convolutions";
    }
  }
  void TearDown() override {
    at::set_num_threads(num_threads_);
  }

  static void check(const ConvolutionCase& given, bool has_bias, bool is_gradient, Order order = Order::kBlocks) {
    const at::Tensor images = at::randn({given.images, given.in_channels, given.rows, given.columns});
    const at::Tensor filters =
        at::randn({given.out_channels, given.in_channels, given.window_rows, given.window_columns});
    const at::Tensor bias = at::randn({given.out_channels});
    Convolution convolution{
        given.images,
        given.in_channels,
        given.out_channels,
        axis(given.rows, given.window_rows, given),
        axis(given.columns, given.window_columns, given),
        images.const_data_ptr<float>(),
        filters.const_data_ptr<float>(),
        has_bias ? bias.const_data_ptr<float>() : nullptr,
        nullptr,
        is_gradient,
        order};
    const auto& [rows, columns] = std::tie(convolution.rows, convolution.columns);
    const at::Tensor result =
        at::full({given.images, given.out_channels, rows.out_size, columns.out_size}, 7.0, at::kFloat);
    // Nothing in it counts.
    const at::Tensor memory = at::full({floats_to_convolve(convolution)}, std::numeric_limits<float>::infinity());
    convolution.result = result.mutable_data_ptr<float>();
    ASSERT_TRUE(convolve(convolution, memory.mutable_data_ptr<float>()));
    const float* element = result.const_data_ptr<float>();
    for (int64_t image = 0; image < given.images; ++image) {
      for (int64_t channel = 0; channel < given.out_channels; ++channel) {
        for (int64_t row = 0; row < rows.out_size; ++row) {
          for (int64_t column = 0; column < columns.out_size; ++column) {
            ASSERT_EQ(*element++, sum_of_window(convolution, image, channel, row, column))
                << image << ' ' << channel << ' ' << row << ' ' << column << " of " << images.sizes() << " and "
                << filters.sizes();
          }
        }
      }
    }
  }

 private:
  const int num_threads_ = at::get_num_threads();
};

TEST_F(ConvolutionTest, SumsUpInOrder) {
  for (const int num_threads : {1, 2, 3}) {
    at::set_num_threads(num_threads);
    for (const ConvolutionCase& given : all_convolutions()) {
      check(given, /*has_bias=*/true, /*is_gradient=*/false);
      check(given, /*has_bias=*/false, /*is_gradient=*/given.stride == 1);
      check(given, /*has_bias=*/true, /*is_gradient=*/false, Order::kChain);
      check(given, /*has_bias=*/true, /*is_gradient=*/false, Order::kRunning);
      check(given, /*has_bias=*/false, /*is_gradient=*/given.stride == 1, Order::kRunning);
    }
  }
}

TEST_F(ConvolutionTest, OfferedWhereItSaves) {
  const auto is_quicker = [](const ConvolutionCase& given) {
    const Convolution convolution{
        given.images,
        given.in_channels,
        given.out_channels,
        axis(given.rows, given.window_rows, given),
        axis(given.columns, given.window_columns, given)};
    return is_quicker_here(convolution, 1);
  };
  EXPECT_TRUE(is_quicker({8, 16, 16, 32, 32, 3, 3, 1, 1, 1}));
  EXPECT_FALSE(is_quicker({8, 256, 256, 28, 28, 3, 3, 1, 1, 1})) << "long enough for oneDNN";
  EXPECT_FALSE(is_quicker({8, 64, 64, 7, 14, 9, 9, 1, 1, 4})) << "more products than a block has room for";
  const int64_t huge = int64_t{1} << 40;
  EXPECT_FALSE(is_quicker({huge, huge, 16, 32, 32, 3, 3, 1, 1, 1})) << "more than can be counted";
  EXPECT_FALSE(is_quicker({8, 16, 16, 32, 32, 3, 3, 1, huge, huge}));
  EXPECT_FALSE(is_quicker({8, 16, 16, 1 << 14, 1 << 14, 3, 3, 1, 1 << 13, 1})) << "more than is worth copying";
}

} // namespace
} // namespace lazyplug::kernels
