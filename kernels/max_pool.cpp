#include "kernels/max_pool.h"

#include <algorithm>
#include <limits>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

bool can_pool(const MaxPool& pool) {
  const auto is_good = [](const MaxPool::Axis& axis) {
    return axis.in_size > 0 && axis.out_size > 0 && axis.window > 0 && axis.step > 0 && axis.stride > 0 &&
           axis.padding >= 0 && axis.first_of(axis.out_size - 1) < axis.in_size;
  };
  return pool.num_planes > 0 && is_good(pool.rows) && is_good(pool.columns) &&
         pool.rows.in_size <= std::numeric_limits<int32_t>::max() / pool.columns.in_size; // places within a plane
}

void run(const MaxPool& pool, const float* from, float* values, int64_t* places) {
  const int64_t num_rows = pool.num_planes * pool.rows.out_size;
  const int64_t work_of_row = pool.columns.out_size * (pool.rows.window + pool.columns.window);
  parallel_for(num_rows, std::max<int64_t>(at::internal::GRAIN_SIZE / work_of_row, 1), [&](int64_t begin, int64_t end) {
    loops<float>().max_pool(pool, begin, end, from, values, places);
  });
}

} // namespace lazyplug::kernels
