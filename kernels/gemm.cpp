#include "kernels/gemm.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "common/processor.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/tile_loops.h"
#include "kernels/trial_numbers.h"

namespace lazyplug::kernels {
namespace {

// Smaller ones, BLAS has other kernels for. For those with few multiplications it is as fast.
constexpr int64_t kLeastSize = 16;
constexpr int64_t kLeastMultiplications = int64_t{1} << 14;
// A thread's share.
constexpr int64_t kGrain = int64_t{1} << 17;

using Floats = std::vector<float>;

Floats random_numbers(int64_t n) {
  Floats numbers(n);
  auto state = static_cast<uint32_t>(n);
  draw_for_trial(numbers.data(), n, state);
  return numbers;
}

// Whether ours are the bits of BLAS, for every length of a sum that is split up in another way. The first product of a
// process waits for it, so it is brief: all read the same numbers, and only one does not add to anything.
bool agrees_with_blas() {
  constexpr int64_t kRows = 40;
  constexpr int64_t kColumns = 72;
  constexpr std::array kInner = {16, 192, 194, 382, 384, 500};
  constexpr int64_t kMostInner = kInner.back();
  const Floats a = random_numbers(kRows * kMostInner);
  const Floats b = random_numbers(kMostInner * kColumns);
  const Floats start = random_numbers(kRows * kColumns);
  const auto agrees = [&](int64_t inner, bool adds) {
    const Matrix by_rows{inner, kColumns, kColumns, 1};
    const auto blas = Product::plan_blas(
        c10::ScalarType::Float,
        {kRows, inner, kMostInner, 1},
        by_rows,
        {kRows, kColumns, kColumns, 1});
    if (!blas) {
      return false;
    }
    Floats expected = start;
    Floats result(kRows * kColumns);
    blas->run(1, a.data(), b.data(), adds ? 1 : 0, expected.data());
    const Gemm gemm{
        .rows = kRows,
        .columns = kColumns,
        .inner = inner,
        .a = {a.data(), kMostInner, 1},
        .b = {b.data(), kColumns, 1},
        .start = adds ? start.data() : nullptr,
        .start_row = kColumns,
        .result = result.data(),
        .result_row = kColumns};
    loops<float>().gemm(gemm, {0, kRows, 0, kColumns});
    return std::memcmp(result.data(), expected.data(), result.size() * sizeof(float)) == 0;
  };
  return agrees(kMostInner, /*adds=*/false) &&
         std::all_of(kInner.begin(), kInner.end(), [&](int64_t inner) { return agrees(inner, /*adds=*/true); });
}

bool is_at_hand() {
  static const bool result = loops<float>().gemm && !is_intel() && agrees_with_blas();
  return result;
}

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

bool has_gemm(int64_t rows, int64_t columns, int64_t inner) {
  const bool is_odd =
      inner > kMaxInnerBlock && inner < 2 * kMaxInnerBlock && inner % 2 != 0; // BLAS splits it otherwise
  return std::min({rows, columns, inner}) >= kLeastSize && rows * columns * inner >= kLeastMultiplications && !is_odd &&
         is_at_hand();
}

void run(const Gemm& gemm) {
  const int64_t work = gemm.rows * gemm.columns * gemm.inner;
  const int64_t num_parts = std::clamp<int64_t>(work / kGrain, 1, at::get_num_threads());
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
