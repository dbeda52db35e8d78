#include "kernels/gemm.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/intra_op_threads.h"
#include "common/processor.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/tile_loops.h"
#include "kernels/trial_numbers.h"

namespace lazyplug::kernels {
namespace {

// Smaller ones, BLAS has other kernels for: on some processors for less than 16, on others for less than this.
constexpr int64_t kLeastSize = 16;
constexpr int64_t kLeastRows = 4;
constexpr int64_t kLeastColumns = 12;
// One product is not added to anything: it may be -0.
constexpr int64_t kLeastInner = 2;
// For those with fewer multiplications it is as fast; for those with more, if its vectors are as wide.
constexpr int64_t kLeastMultiplications = int64_t{1} << 11;
constexpr int64_t kMostOfSameVectors = int64_t{1} << 25;
// A thread's share.
constexpr int64_t kGrain = int64_t{1} << 17;

using Floats = std::vector<float>;

Floats random_numbers(int64_t n) {
  Floats numbers(n);
  auto state = static_cast<uint32_t>(n);
  draw_for_trial(numbers.data(), n, state);
  return numbers;
}

// Which products have the bits of BLAS.
enum class Agreement : uint8_t { kNone, kUsual, kSmall };

// It is asked for every length of a sum that is split up in another way. The first product of a process waits for it,
// so it is brief: all read the same numbers, and only one does not add to anything.
class Trial {
 public:
  Agreement agreement() const {
    constexpr std::array kInner = {16, 192, 194, 382, 384, 500};
    const bool is_usual =
        agrees(kMostRows, kMostColumns, kMostInner, /*adds=*/false) &&
        std::all_of(kInner.begin(), kInner.end(), [&](int64_t n) { return agrees(kMostRows, kMostColumns, n); });
    if (!is_usual) {
      return Agreement::kNone;
    }
    // Halves that are not alike, and sizes for which there may be other kernels.
    const bool is_small = agrees(kMostRows, kMostColumns, 383) && agrees(kLeastRows, kLeastColumns, kMostInner) &&
                          agrees(kLeastRows, kMostColumns, 64) && agrees(kMostRows, kLeastColumns, 64) &&
                          agrees(8, 15, kLeastInner, /*adds=*/false) && agrees(5, 13, 193) &&
                          agrees(7, kMostColumns, 31);
    return is_small ? Agreement::kSmall : Agreement::kUsual;
  }

 private:
  static constexpr int64_t kMostRows = 40;
  static constexpr int64_t kMostColumns = 76;
  static constexpr int64_t kMostInner = 500;

  bool agrees(int64_t rows, int64_t columns, int64_t inner, bool adds = true) const {
    const auto blas = Product::plan_blas(
        c10::ScalarType::Float,
        {rows, inner, kMostInner, 1},
        {inner, columns, kMostColumns, 1},
        {rows, columns, columns, 1});
    if (!blas) {
      return false;
    }
    // Others may be asked for with fewer threads than now.
    IntraOpThreadsScope threads;
    if (!has_bits_of_blas(rows, columns, threads.before())) {
      threads.use(1);
    }
    Floats expected = start_;
    Floats result(rows * columns);
    blas->run(1, a_.data(), b_.data(), adds ? 1 : 0, expected.data());
    const Gemm gemm{
        .rows = rows,
        .columns = columns,
        .inner = inner,
        .a = {a_.data(), kMostInner, 1},
        .b = {b_.data(), kMostColumns, 1},
        .start = adds ? start_.data() : nullptr,
        .start_row = columns,
        .result = result.data(),
        .result_row = columns};
    loops<float>().gemm(gemm, {0, rows, 0, columns});
    return std::memcmp(result.data(), expected.data(), result.size() * sizeof(float)) == 0;
  }

  static Floats numbers_and_zeros(int64_t n) {
    Floats numbers = random_numbers(n);
    for (int64_t i = 0; i < n; i += 3) {
      numbers[i] = std::copysign(0.0F, numbers[i]);
    }
    return numbers;
  }

  const Floats a_ = numbers_and_zeros(kMostRows * kMostInner);
  const Floats b_ = random_numbers(kMostInner * kMostColumns);
  const Floats start_ = random_numbers(kMostRows * kMostColumns);
};

Agreement agreement() {
  static const Agreement result = loops<float>().gemm && !is_intel() ? Trial().agreement() : Agreement::kNone;
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
  const bool has_wider_vectors = loops<float>().num_lanes == kLanesOfAvx512;
  const int64_t most = has_wider_vectors ? std::numeric_limits<int64_t>::max() : kMostOfSameVectors;
  const int64_t work = rows * columns * inner;
  if (rows < kLeastRows || columns < kLeastColumns || inner < kLeastInner || work < kLeastMultiplications ||
      work > most) {
    return false;
  }
  const bool is_odd =
      inner > kMaxInnerBlock && inner < 2 * kMaxInnerBlock && inner % 2 != 0; // BLAS may split it otherwise
  const bool is_usual = std::min({rows, columns, inner}) >= kLeastSize && !is_odd;
  return agreement() >= (is_usual ? Agreement::kUsual : Agreement::kSmall);
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
