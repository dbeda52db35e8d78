#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

// A thread's share.
constexpr int64_t kProductGrain = int64_t{1} << 17;

// As much of the result as is computed at a time: parts are whole ones.
constexpr int64_t kRowStep = 12;
constexpr int64_t kColumnStep = 32;

int64_t num_steps(int64_t size, int64_t step) {
  return (size + step - 1) / step;
}

// The largest part's share.
double share(int64_t size, int64_t step, int64_t num_parts) {
  const int64_t steps = num_steps(size, step);
  return static_cast<double>(num_steps(steps, num_parts)) / static_cast<double>(steps);
}

// Rows or columns of a part.
struct Range {
  int64_t begin;
  int64_t end;
};

Range part_of(int64_t size, int64_t step, int64_t part, int64_t num_parts) {
  const int64_t steps = num_steps(size, step);
  return {std::min(size, steps * part / num_parts * step), std::min(size, steps * (part + 1) / num_parts * step)};
}

} // namespace

void run(const Gemm& gemm) {
  const int64_t work = gemm.rows * gemm.columns * gemm.inner;
  const int64_t num_parts = std::clamp<int64_t>(work / kProductGrain, 1, at::get_num_threads());
  // Of columns, if it makes no difference: each part copies what it reads of b.
  const bool splits_rows = share(gemm.rows, kRowStep, num_parts) < share(gemm.columns, kColumnStep, num_parts);
  parallel_for(num_parts, /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const Range rows = splits_rows ? part_of(gemm.rows, kRowStep, part, num_parts) : Range{0, gemm.rows};
      const Range columns = splits_rows ? Range{0, gemm.columns} : part_of(gemm.columns, kColumnStep, part, num_parts);
      loops<float>().gemm(gemm, {rows.begin, rows.end, columns.begin, columns.end});
    }
  });
}

} // namespace lazyplug::kernels
