#include "kernels/filter_gradient.h"

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

// A chain of fused multiply-adds through the windows of each part.
class FilterGradientTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!loops<float>().sum_up_filters) {
      GTEST_SKIP() << "this target has no kernel for gradients of filters";
    }
  }
  void TearDown() override {
    at::set_num_threads(num_threads_);
  }

  static void check(const ConvolutionCase& given, int64_t num_parts, bool has_bias) {
    const at::Tensor images = at::randn({given.images, given.in_channels, given.rows, given.columns});
    const Convolution convolution{
        given.images,
        given.in_channels,
        given.out_channels,
        axis(given.rows, given.window_rows, given),
        axis(given.columns, given.window_columns, given),
        images.const_data_ptr<float>()};
    const auto& [rows, columns] = std::tie(convolution.rows, convolution.columns);
    const at::Tensor gradients = at::randn({given.images, given.out_channels, rows.out_size, columns.out_size});
    const at::Tensor of_filters =
        at::zeros({given.out_channels, given.in_channels, given.window_rows, given.window_columns});
    const at::Tensor of_bias = at::zeros({given.out_channels});
    const FilterGradient gradient{
        convolution,
        gradients.const_data_ptr<float>(),
        num_parts,
        of_filters.mutable_data_ptr<float>(),
        has_bias ? of_bias.mutable_data_ptr<float>() : nullptr};
    const at::Tensor memory = at::full({floats_to_compute(gradient)}, std::numeric_limits<float>::infinity());
    ASSERT_TRUE(compute(gradient, memory.mutable_data_ptr<float>()));
    const auto x = images.accessor<float, 4>();
    const auto g = gradients.accessor<float, 4>();
    const auto sum_up = [&](int64_t out, auto&& add) {
      float total = 0;
      for (int64_t part = 0, image = 0; part < num_parts; ++part) {
        float sum = 0;
        const int64_t count = given.images / num_parts + (part < given.images % num_parts ? 1 : 0);
        for (const int64_t end = image + count; image < end; ++image) {
          for (int64_t row = 0; row < rows.out_size; ++row) {
            for (int64_t column = 0; column < columns.out_size; ++column) {
              sum = add(image, row, column, g[image][out][row][column], sum);
            }
          }
        }
        total = part == 0 ? sum : total + sum;
      }
      return total;
    };
    for (int64_t out = 0; out < given.out_channels; ++out) {
      const float bias = sum_up(out, [](int64_t, int64_t, int64_t, float more, float sum) { return sum + more; });
      ASSERT_EQ(of_bias[out].item<float>(), has_bias ? bias : 0) << out;
      for (int64_t element = 0; element < of_filters[out].numel(); ++element) {
        const int64_t in = element / convolution.filter_size();
        const int64_t i = element / given.window_columns % given.window_rows;
        const int64_t j = element % given.window_columns;
        const float expected = sum_up(out, [&](int64_t image, int64_t row, int64_t column, float more, float sum) {
          const int64_t in_row = rows.begin_of(row) + i * rows.step;
          const int64_t in_column = columns.begin_of(column) + j * columns.step;
          const bool is_inside = in_row >= 0 && in_row < rows.in_size && in_column >= 0 && in_column < columns.in_size;
          return is_inside ? std::fma(more, x[image][in][in_row][in_column], sum) : sum;
        });
        ASSERT_EQ(of_filters[out].view(-1)[element].item<float>(), expected)
            << out << ' ' << element << " of " << of_filters.sizes() << " and " << images.sizes();
      }
    }
  }

 private:
  const int num_threads_ = at::get_num_threads();
};

TEST_F(FilterGradientTest, SumsUpImageByImage) {
  for (const int num_threads : {1, 2, 3}) {
    at::set_num_threads(num_threads);
    for (const ConvolutionCase& given : all_convolutions()) {
      for (const int64_t num_parts : {int64_t{1}, int64_t{2}, given.images}) {
        if (num_parts <= given.images) {
          check(given, num_parts, /*has_bias=*/num_parts != 2);
        }
      }
    }
    check({40, 2, 70, 20, 20, 3, 3, 1, 1, 1}, 2, /*has_bias=*/true); // more than the cache has room for
  }
}

} // namespace
} // namespace lazyplug::kernels
