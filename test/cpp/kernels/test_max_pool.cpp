#include "kernels/max_pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/tile_loops.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

struct Case {
  at::Tensor input;
  MaxPool pool;
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
  const auto axis = [&](int64_t i) -> MaxPool::Axis {
    return {input.size(1 + i), values.size(1 + i), window[i], step[i], stride[i], padding[i]};
  };
  return {input, {input.size(0), axis(0), axis(1)}, values, places};
}

using Loop = decltype(Loops<float>::max_pool);

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

TEST(MaxPool, HasTheBitsAndPlacesOfPyTorchs) {
  expect_same_as_pytorch(loops<float>().max_pool);
  expect_same_as_pytorch(default_target::loops<float>().max_pool);
#ifdef __x86_64__
  if (at::get_cpu_capability() == "AVX512") {
    expect_same_as_pytorch(avx2::loops<float>().max_pool);
  }
#endif
}

TEST(MaxPool, RunsOnSeveralThreads) {
  const auto pooled = make_case(at::randn({70, 40, 40}), {2, 2}, {2, 2}, {0, 0}, {1, 1});
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  const at::Tensor values = at::empty_like(pooled.values);
  const at::Tensor places = at::empty_like(pooled.places);
  run(pooled.pool,
      pooled.input.const_data_ptr<float>(),
      values.mutable_data_ptr<float>(),
      places.mutable_data_ptr<int64_t>());
  at::set_num_threads(threads);
  EXPECT_TRUE(values.equal(pooled.values));
  EXPECT_TRUE(places.equal(pooled.places));
}

TEST(MaxPool, HasElementsInEachWindow) {
  const MaxPool::Axis good{8, 4, 2, 1, 2, 0};
  const auto is_possible = [&](const MaxPool::Axis& axis) {
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
