#include "kernels/blas_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/intra_op_threads.h"
#include "common/processor.h"
#include "kernels/lanes.h"
#include "kernels/product.h"
#include "kernels/tile_loops.h"
#include "kernels/trial_numbers.h"

namespace lazyplug::kernels {
namespace {

// Smaller ones, BLAS has other kernels for: on some processors for less than 16, on others for less than this.
constexpr int64_t kLeastSize = 16;
constexpr int64_t kLeastRows = 4;
constexpr int64_t kLeastColumns = 12;
constexpr int64_t kLeastColumnsOfIntel = 4;
// One product is not added to anything: it may be -0.
constexpr int64_t kLeastInner = 2;
// For those with fewer multiplications it is as fast; for those with more, if its vectors are as wide.
constexpr int64_t kLeastMultiplications = int64_t{1} << 11;
constexpr int64_t kMostOfSameVectors = int64_t{1} << 25;
constexpr int64_t kMostOfIntel = int64_t{1} << 21;
constexpr int64_t kMostTransposedOfIntel = int64_t{1} << 22;

bool has_wide_vectors() {
  return loops<float>().num_lanes == kLanesOfAvx512;
}

static_assert(
    longest_block(BlasKernels::kBy192) <= kLongestBlock && longest_block(BlasKernels::kBy384) <= kLongestBlock);

using Floats = std::vector<float>;

Floats random_numbers(int64_t n) {
  Floats numbers(n);
  auto state = static_cast<uint32_t>(n);
  draw_for_trial(numbers.data(), n, state);
  return numbers;
}

// It is asked for every length of a sum that is split up in another way. The first product of a process waits for it,
// so it is brief: all read the same numbers, and only some do not add to anything.
class Trial {
 public:
  explicit Trial(BlasKernels kernels) : kernels_(kernels) {}

  bool agrees_usually() const {
    constexpr std::array kInner = {16, 192, 194, 382, 384, 500};
    return agrees({kMostRows, kMostColumns, kMostInner}, /*adds=*/false) &&
           std::all_of(kInner.begin(), kInner.end(), [&](int64_t n) { return agrees({kMostRows, kMostColumns, n}); });
  }

  // Halves that are not alike, and sizes for which there may be other kernels.
  bool agrees_on_small() const {
    return agrees({kMostRows, kMostColumns, 383}) && agrees({kLeastRows, kLeastColumns, kMostInner}) &&
           agrees({kLeastRows, kMostColumns, 64}) && agrees({kMostRows, kLeastColumns, 64}) &&
           agrees({8, 15, kLeastInner}, /*adds=*/false) && agrees({5, 13, 193}) && agrees({7, kMostColumns, 31});
  }

  bool agrees_with_intel() const {
    constexpr std::array<ProductSizes, 10> kSizes = {
        {{kMostRows, kMostColumns, 384},
         {kMostRows, kMostColumns, 384, false},
         {kMostRows, kMostColumns, 193},
         {kLeastRows, kLeastColumnsOfIntel, 384},
         {kLeastRows, kMostColumns, 64},
         {7, kLeastColumnsOfIntel, 193},
         {16, kMostColumns, 383, false},
         {8, kLeastColumnsOfIntel, 191, false},
         {11, kMostColumns, 263, false},
         {15, 15, 16, false}}};
    return std::all_of(kSizes.begin(), kSizes.end(), [&](const ProductSizes& sizes) { return agrees(sizes); }) &&
           agrees({kMostRows, kMostColumns, 384}, /*adds=*/false) && agrees({8, 15, kLeastInner}, /*adds=*/false);
  }

 private:
  static constexpr int64_t kMostRows = 40;
  static constexpr int64_t kMostColumns = 76;
  static constexpr int64_t kMostInner = 500;

  bool agrees(const ProductSizes& sizes, bool adds = true) const {
    const auto& [rows, columns, inner, b_is_by_rows] = sizes;
    const int64_t b_row = b_is_by_rows ? kMostColumns : 1;
    const int64_t b_column = b_is_by_rows ? 1 : kMostInner;
    const auto blas = Product::plan_blas(
        c10::ScalarType::Float,
        {rows, inner, kMostInner, 1},
        {inner, columns, b_row, b_column},
        {rows, columns, columns, 1});
    if (!blas) {
      return false;
    }
    // Others may be asked for with fewer threads than now. Intel's are known not to depend on them, and several would
    // have to be woken up.
    IntraOpThreadsScope threads;
    if (kernels_ == BlasKernels::kBy384 || !has_bits_of_blas(kernels_, sizes, threads.before())) {
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
        .b = {b_.data(), b_row, b_column},
        .start = adds ? start_.data() : nullptr,
        .start_row = columns,
        .result = result.data(),
        .result_row = columns,
        .longest_block = longest_block(kernels_)};
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

  const BlasKernels kernels_;
  const Floats a_ = numbers_and_zeros(kMostRows * kMostInner);
  const Floats b_ = random_numbers(kMostInner * kMostColumns);
  const Floats start_ = random_numbers(kMostRows * kMostColumns);
};

BlasKernels find_kernels() {
  if (!loops<float>().gemm) {
    return BlasKernels::kOther;
  }
  if (is_intel()) { // those with AVX2 alone have not been looked at
    return has_wide_vectors() && Trial(BlasKernels::kBy384).agrees_with_intel() ? BlasKernels::kBy384
                                                                                : BlasKernels::kOther;
  }
  const Trial trial(BlasKernels::kBy192);
  return !trial.agrees_usually()   ? BlasKernels::kOther
         : trial.agrees_on_small() ? BlasKernels::kAllBy192
                                   : BlasKernels::kBy192;
}

int64_t multiplications(const ProductSizes& sizes) {
  return sizes.rows * sizes.columns * sizes.inner;
}

int64_t most_multiplications(BlasKernels kernels, bool b_is_by_rows) {
  if (kernels == BlasKernels::kBy384) {
    return b_is_by_rows ? kMostOfIntel : kMostTransposedOfIntel;
  }
  return has_wide_vectors() ? std::numeric_limits<int64_t>::max() : kMostOfSameVectors;
}

// Longer sums may be divided among threads.
bool has_bits_of_intel(const ProductSizes& sizes, int num_threads) {
  constexpr int kMostThreads = 6;
  constexpr int kMostThreadsOfShortSums = 12;
  constexpr int64_t kLeastTransposedRows = 8;
  constexpr int64_t kInnerOfRow = 24; // longer sums of few rows are added up in another way, if b is by columns
  const int64_t rows = sizes.rows / num_threads;
  const int64_t longest = longest_block(BlasKernels::kBy384);
  return sizes.inner <= longest && num_threads <= (sizes.inner < longest ? kMostThreadsOfShortSums : kMostThreads) &&
         (sizes.b_is_by_rows || (rows >= kLeastTransposedRows && sizes.inner < kInnerOfRow * rows));
}

} // namespace

BlasKernels blas_kernels() {
  static const BlasKernels kernels = find_kernels();
  return kernels;
}

bool is_small(const ProductSizes& sizes) {
  return sizes.rows < kLeastRows || sizes.columns < kLeastColumnsOfIntel || sizes.inner < kLeastInner ||
         multiplications(sizes) < kLeastMultiplications;
}

bool has_gemm(BlasKernels kernels, const ProductSizes& sizes) {
  if (is_small(sizes) || multiplications(sizes) > most_multiplications(kernels, sizes.b_is_by_rows)) {
    return false;
  }
  switch (kernels) {
    case BlasKernels::kOther:
      return false;
    case BlasKernels::kBy192: {
      const int64_t longest = longest_block(kernels);
      const bool is_odd = sizes.inner > longest && sizes.inner < 2 * longest && sizes.inner % 2 != 0;
      return std::min({sizes.rows, sizes.columns, sizes.inner}) >= kLeastSize &&
             !is_odd; // odd ones may be split otherwise
    }
    case BlasKernels::kAllBy192:
      return sizes.columns >= kLeastColumns;
    case BlasKernels::kBy384:
      return has_bits_of_intel(sizes, /*num_threads=*/1);
  }
  return false;
}

bool has_bits_of_blas(BlasKernels kernels, const ProductSizes& sizes, int num_threads) {
  if (kernels == BlasKernels::kBy384) {
    return has_bits_of_intel(sizes, num_threads);
  }
  // It gives each thread some fours of rows, or sixteens of columns, and has other kernels for less than one of four
  // rows, or twelve columns, which the last thread may be left with.
  const auto& [rows, columns, inner, b_is_by_rows] = sizes;
  const bool has_rows = num_threads == 1 || rows % 4 == 0 || rows >= int64_t{8} * num_threads;
  const bool has_columns =
      num_threads <= 2 || columns % 16 == 0 || columns % 16 >= 12 || columns >= int64_t{32} * num_threads;
  return has_rows && has_columns;
}

} // namespace lazyplug::kernels
