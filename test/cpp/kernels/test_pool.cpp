#include "kernels/pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "test/cpp/kernels/targets.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

struct Case {
  at::Tensor input;
  Pool pool;
  at::Tensor values;
  at::Tensor places;
};

// What PyTorch makes of it.
Case make_case(
    const at::Tensor& input,
    std::array<int64_t, 2> window,
    std::array<int64_t, 2> stride,
    std::array<int64_t, 2> padding,
    std::array<int64_t, 2> step) {
  auto [values, places] = at::max_pool2d_with_indices(input, window, stride, padding, step);
  const auto axis = [&](int64_t i) -> Pool::Axis {
    return {input.size(1 + i), values.size(1 + i), window[i], step[i], stride[i], padding[i]};
  };
  return {input, {input.size(0), axis(0), axis(1)}, values, places};
}

using Loop = decltype(Loops<float>::find_largest);

void expect_same(const Case& pooled, Loop loop) {
  ASSERT_TRUE(can_pool(pooled.pool));
  const at::Tensor values = at::zeros_like(pooled.values);
  const at::Tensor alone = at::zeros_like(pooled.values);
  const at::Tensor places = at::zeros_like(pooled.places);
  const int64_t num_rows = pooled.pool.num_planes * pooled.pool.rows.out_size;
  const auto* from = pooled.input.const_data_ptr<float>();
  loop(pooled.pool, 0, num_rows, from, values.mutable_data_ptr<float>(), places.mutable_data_ptr<int64_t>());
  for (int64_t row = 0; row < num_rows; ++row) { // wherever the range is cut
    loop(pooled.pool, row, row + 1, from, alone.mutable_data_ptr<float>(), nullptr);
  }
  EXPECT_TRUE(same_bits(values, pooled.values)) << pooled.input.sizes();
  EXPECT_TRUE(same_bits(alone, pooled.values)) << pooled.input.sizes();
  EXPECT_TRUE(places.equal(pooled.places)) << pooled.input.sizes();
}

void expect_same_as_pytorch(Loop loop) {
  at::manual_seed(1);
  for (const auto& [height, width] : {std::pair(1, 1), {5, 7}, {16, 16}, {33, 41}, {40, 9}}) {
    const at::Tensor random = at::randn({3, height, width});
    const at::Tensor ties = random.round(); // and zeros of both signs
    at::Tensor odd = random.clone();
    odd.masked_fill_(random > 0.8, std::nan(""));
    odd.masked_fill_(random < 0, -std::numeric_limits<double>::infinity());
    for (const at::Tensor& input :
         {random, ties, odd, at::full_like(random, -std::numeric_limits<double>::infinity())}) {
      expect_same(make_case(input, {1, 1}, {1, 1}, {0, 0}, {1, 1}), loop);
      expect_same(make_case(input, {3, 3}, {1, 1}, {1, 1}, {1, 1}), loop);
      expect_same(make_case(input, {3, 3}, {2, 2}, {1, 1}, {1, 1}), loop);
      expect_same(make_case(input, {2, 3}, {4, 3}, {1, 1}, {1, 1}), loop);
      if (height > 4) {
        expect_same(make_case(input, {2, 2}, {2, 2}, {0, 0}, {1, 1}), loop);
        expect_same(make_case(input, {3, 2}, {1, 2}, {1, 0}, {2, 3}), loop);
        expect_same(make_case(input, {5, 7}, {2, 1}, {2, 3}, {1, 1}), loop);
      }
    }
  }
}

TEST(Pool, HasTheBitsAndPlacesOfPyTorchs) {
  for_each_target([](const Loops<float>& target) { expect_same_as_pytorch(target.find_largest); });
}

TEST(Pool, TakesChannelsSideBySide) {
  for (const int64_t channels : {2, 7, 16, 37}) {
    const at::Tensor images = at::randn({2, channels, 7, 9}).round();
    images.masked_fill_(at::rand_like(images) < 0.1, std::nan(""));
    const auto [values, places] = at::max_pool2d_with_indices(images, {3, 2}, {2, 1}, {1, 1}, {1, 2});
    const Pool pool{2, {7, values.size(2), 3, 1, 2, 1}, {9, values.size(3), 2, 2, 1, 1}, channels};
    const at::Tensor last = images.permute({0, 2, 3, 1}).contiguous();
    const at::Tensor ours = at::empty({2, values.size(2), values.size(3), channels});
    const at::Tensor our_places = at::empty(ours.sizes(), at::kLong);
    find_largest(
        pool,
        last.const_data_ptr<float>(),
        ours.mutable_data_ptr<float>(),
        our_places.mutable_data_ptr<int64_t>());
    EXPECT_TRUE(same_bits(ours.permute({0, 3, 1, 2}).contiguous(), values)) << channels;
    EXPECT_TRUE(our_places.permute({0, 3, 1, 2}).equal(places)) << channels;
  }
}

TEST(Pool, RunsOnSeveralThreads) {
  const auto pooled = make_case(at::randn({70, 40, 40}), {2, 2}, {2, 2}, {0, 0}, {1, 1});
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  const at::Tensor values = at::empty_like(pooled.values);
  const at::Tensor places = at::empty_like(pooled.places);
  find_largest(
      pooled.pool,
      pooled.input.const_data_ptr<float>(),
      values.mutable_data_ptr<float>(),
      places.mutable_data_ptr<int64_t>());
  at::set_num_threads(threads);
  EXPECT_TRUE(values.equal(pooled.values));
  EXPECT_TRUE(places.equal(pooled.places));
}

void expect_same_means(
    decltype(Loops<float>::find_mean) loop,
    const at::Tensor& images,
    bool counts_padding,
    bool ceil_mode) {
  const auto find_mean = [&](const Pool& pool, const at::Tensor& from, at::Tensor result) {
    const int64_t num_rows = pool.num_planes * pool.rows.out_size;
    loop(pool, counts_padding, 0, num_rows, from.const_data_ptr<float>(), result.mutable_data_ptr<float>());
    return result;
  };
  const int64_t channels = images.size(1);
  for (const auto& [window, stride, padding] :
       {std::tuple(2, 2, 0), {3, 2, 1}, {3, 1, 1}, {5, 3, 2}, {1, 4, 0}, {2, 2, 1}}) {
    const at::Tensor expected = at::avg_pool2d(images, window, stride, padding, ceil_mode, counts_padding);
    const auto axis = [&](int64_t dim) -> Pool::Axis {
      return {images.size(dim), expected.size(dim), window, 1, stride, padding};
    };
    const at::Tensor by_plane = find_mean({2 * channels, axis(2), axis(3)}, images, at::empty_like(expected));
    EXPECT_TRUE(same_bits(by_plane, expected)) << images.sizes() << " " << window << " " << stride;
    if (channels > 1) {
      const at::Tensor last = images.permute({0, 2, 3, 1}).contiguous();
      const at::Tensor empty = at::empty({2, expected.size(2), expected.size(3), channels});
      const at::Tensor side_by_side = find_mean({2, axis(2), axis(3), channels}, last, empty);
      EXPECT_TRUE(same_bits(side_by_side.permute({0, 3, 1, 2}).contiguous(), expected)) << channels << " " << window;
    }
  }
}

void expect_same_means(decltype(Loops<float>::find_mean) loop) {
  at::manual_seed(1);
  for (const int64_t channels : {1, 3, 40}) {
    const at::Tensor images = at::randn({2, channels, 11, 38});
    for (const bool counts_padding : {false, true}) {
      expect_same_means(loop, images, counts_padding, /*ceil_mode=*/false);
      expect_same_means(loop, images, counts_padding, /*ceil_mode=*/true);
    }
  }
}

TEST(Pool, HasTheMeansOfPyTorchs) {
  for_each_target([](const Loops<float>& target) { expect_same_means(target.find_mean); });
}

TEST(Pool, HasElementsInEachWindow) {
  const Pool::Axis good{8, 4, 2, 1, 2, 0};
  const auto is_possible = [&](const Pool::Axis& axis) {
    return can_pool({1, axis, good}) && can_pool({1, good, axis});
  };
  EXPECT_TRUE(is_possible(good));
  EXPECT_FALSE(is_possible({0, 4, 2, 1, 2, 0}));
  EXPECT_FALSE(is_possible({8, 0, 2, 1, 2, 0}));
  EXPECT_FALSE(is_possible({8, 6, 2, 1, 2, 0}));
  EXPECT_FALSE(can_pool({0, good, good}));
  EXPECT_FALSE(can_pool({1, {1 << 20, 4, 2, 1, 2, 0}, {1 << 20, 4, 2, 1, 2, 0}})); // places of more than 31 bits
}

} // namespace
} // namespace lazyplug::kernels
