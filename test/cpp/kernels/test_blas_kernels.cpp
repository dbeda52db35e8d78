#include "kernels/blas_kernels.h"

#include <gtest/gtest.h>

#include "kernels/lanes.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

constexpr ProductSizes transposed(ProductSizes sizes) {
  sizes.b_is_by_rows = false;
  return sizes;
}

TEST(BlasKernelsTest, OursAreThoseOfBlasOnly) {
  EXPECT_FALSE(has_gemm(BlasKernels::kOther, {64, 64, 64}));
  for (const auto kernels : {BlasKernels::kBy192, BlasKernels::kAllBy192, BlasKernels::kBy384}) {
    EXPECT_TRUE(has_gemm(kernels, {64, 64, 64}));
    EXPECT_FALSE(has_gemm(kernels, {3, 64, 64}));
    EXPECT_EQ(has_gemm(kernels, {64, 11, 64}), kernels == BlasKernels::kBy384);
    EXPECT_FALSE(has_gemm(kernels, {64, 3, 64}));
    EXPECT_FALSE(has_gemm(kernels, {64, 64, 1})) << "zeros may be negative";
    EXPECT_FALSE(has_gemm(kernels, {4, 16, 16})) << "small";
    EXPECT_TRUE(is_small({4, 16, 16}));
    EXPECT_FALSE(is_small({64, 64, 64}));
    const bool has_small = kernels != BlasKernels::kBy192; // one kernel for all
    EXPECT_EQ(has_gemm(kernels, {15, 64, 64}), has_small);
    EXPECT_EQ(has_gemm(kernels, {64, 15, 64}), has_small);
    EXPECT_EQ(has_gemm(kernels, {64, 64, 193}), has_small) << "halves that are not alike";
  }
}

TEST(BlasKernelsTest, LargeOnesAreOursWhereOurVectorsAreWider) {
  const bool has_wide_vectors = loops<float>().num_lanes == kLanesOfAvx512;
  EXPECT_EQ(has_gemm(BlasKernels::kAllBy192, {256, 1024, 1024}), has_wide_vectors);
  EXPECT_TRUE(has_gemm(BlasKernels::kAllBy192, {256, 256, 256}));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, {256, 256, 256}));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, {64, 256, 256}));
  EXPECT_TRUE(has_gemm(BlasKernels::kBy384, transposed({64, 256, 256})));
}

TEST(BlasKernelsTest, LongSumsOfIntelAreNotOurs) {
  EXPECT_TRUE(has_gemm(BlasKernels::kBy384, {32, 64, 384}));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, {32, 64, 385}));
  EXPECT_TRUE(has_gemm(BlasKernels::kBy384, {8, 64, 384}));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, transposed({8, 64, 384}))) << "few rows";
  EXPECT_TRUE(has_gemm(BlasKernels::kBy384, transposed({8, 64, 191})));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, transposed({8, 64, 192})));
  EXPECT_FALSE(has_gemm(BlasKernels::kBy384, transposed({7, 64, 64})));
}

TEST(BlasKernelsTest, PartsOfThreadsAreNotTooNarrow) {
  const auto has_bits = [](int64_t rows, int64_t columns, int num_threads) {
    return has_bits_of_blas(BlasKernels::kAllBy192, {rows, columns, 64}, num_threads);
  };
  EXPECT_TRUE(has_bits(5, 13, 1));
  EXPECT_FALSE(has_bits(5, 64, 2)) << "one row is left";
  EXPECT_TRUE(has_bits(8, 64, 2));
  EXPECT_TRUE(has_bits(17, 100, 2));
  EXPECT_FALSE(has_bits(32, 40, 3)) << "eight columns are left";
  EXPECT_FALSE(has_bits(32, 100, 4)) << "four columns are left";
  EXPECT_TRUE(has_bits(32, 100, 3));
  EXPECT_TRUE(has_bits(32, 48, 3));
  EXPECT_TRUE(has_bits(32, 28, 4));
}

TEST(BlasKernelsTest, ThreadsOfIntelHaveFewRows) {
  const auto has_bits = [](const ProductSizes& sizes, int num_threads) {
    return has_bits_of_blas(BlasKernels::kBy384, sizes, num_threads);
  };
  EXPECT_TRUE(has_bits({5, 13, 64}, 2));
  EXPECT_TRUE(has_bits(transposed({16, 64, 64}), 2));
  EXPECT_FALSE(has_bits(transposed({15, 64, 64}), 2));
  EXPECT_TRUE(has_bits({64, 64, 383}, 8));
  EXPECT_FALSE(has_bits({64, 64, 384}, 8)) << "sums are divided";
  EXPECT_FALSE(has_bits({64, 64, 64}, 13));
}

} // namespace
} // namespace lazyplug::kernels
