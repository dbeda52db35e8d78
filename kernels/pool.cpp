#include "kernels/pool.h"

#include <algorithm>
#include <limits>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

bool can_pool(const Pool& pool) {
  const auto is_good = [](const Pool::Axis& axis) {
    return axis.in_size > 0 && axis.out_size > 0 && axis.window > 0 && axis.step > 0 && axis.stride > 0 &&
           axis.padding >= 0 && axis.first_of(axis.out_size - 1) < axis.in_size;
  };
  return pool.num_planes > 0 && pool.num_channels > 0 && is_good(pool.rows) && is_good(pool.columns) &&
         pool.rows.in_size <= std::numeric_limits<int32_t>::max() / pool.columns.in_size;
}

bool is_quicker_here(const Pool& pool) {
  if (pool.num_channels > 1) {
    return true;
  }
  constexpr int64_t kLanes = 16;
  const Pool::Axis& columns = pool.columns;
  const int64_t lanes = (columns.out_size + kLanes - 1) / kLanes * kLanes;
  return columns.stride <= 2 ? columns.out_size > 1 : columns.stride <= 4 && 2 * columns.out_size >= lanes;
}

namespace {

// Computes parts of the rows of windows, of all planes.
template <typename Compute>
void run(const Pool& pool, int64_t work_of_element, const Compute& compute) {
  const int64_t work_of_row = pool.columns.out_size * pool.num_channels * work_of_element;
  const int64_t grain = std::max<int64_t>(at::internal::GRAIN_SIZE / work_of_row, 1);
  parallel_for(pool.num_planes * pool.rows.out_size, grain, compute);
}

} // namespace

void find_largest(const Pool& pool, const float* from, float* values, int64_t* places) {
  run(pool, pool.rows.window + pool.columns.window, [&](int64_t begin, int64_t end) {
    loops<float>().find_largest(pool, begin, end, from, values, places);
  });
}

void find_mean(const Pool& pool, bool counts_padding, const float* from, float* to) {
  run(pool, pool.rows.window * pool.columns.window, [&](int64_t begin, int64_t end) {
    loops<float>().find_mean(pool, counts_padding, begin, end, from, to);
  });
}

} // namespace lazyplug::kernels
