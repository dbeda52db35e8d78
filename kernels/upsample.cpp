#include "kernels/upsample.h"

#include <algorithm>

#include "kernels/parallel.h"

namespace lazyplug::kernels {
namespace {

// Rows of the result, of all planes.
void run_rows(const Upsample& upsample, int64_t begin, int64_t end, const float* from, float* to) {
  const auto num_rows = static_cast<int64_t>(upsample.rows.size());
  const auto width = static_cast<int64_t>(upsample.columns.size());
  const int32_t* columns = upsample.columns.data();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i % num_rows;
    float* out = to + i * width;
    if (i > begin && row > 0 && upsample.rows[row] == upsample.rows[row - 1]) {
      std::copy_n(out - width, width, out);
      continue;
    }
    const float* in = from + (i / num_rows * upsample.in_height + upsample.rows[row]) * upsample.in_width;
    for (int64_t column = 0; column < width; ++column) {
      out[column] = in[columns[column]];
    }
  }
}

} // namespace

void run(const Upsample& upsample, const float* from, float* to) {
  const auto num_rows = static_cast<int64_t>(upsample.rows.size());
  const auto width = static_cast<int64_t>(upsample.columns.size());
  const int64_t grain = std::max<int64_t>(at::internal::GRAIN_SIZE / width, 1);
  parallel_for(upsample.num_planes * num_rows, grain, [&](int64_t begin, int64_t end) {
    run_rows(upsample, begin, end, from, to);
  });
}

} // namespace lazyplug::kernels
