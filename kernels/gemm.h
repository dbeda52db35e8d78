#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// A float32 product that is computed by this package: result = start + a * b.
struct Gemm {
  struct Operand {
    const float* data;
    int64_t row_stride; // elements; one of the two is 1
    int64_t column_stride;
  };

  int64_t rows;
  int64_t columns;
  int64_t inner;
  Operand a;
  Operand b;
  const float* start; // null: 0; the rows of both are without gaps
  int64_t start_row;  // stride; 0: all rows are one
  float* result;
  int64_t result_row; // stride
};

// What one thread computes of it.
struct GemmBlock {
  int64_t first_row;
  int64_t end_row;
  int64_t first_column;
  int64_t end_column;
};

// PyTorch's BLAS has no kernels with AVX-512 for processors that are not Intel's. On these, ours take half of its time,
// and on processors with AVX2 less for small products, with its bits: each sum is of blocks of so many products, which
// are added up with fused multiply-adds, in order.
constexpr int64_t kMaxInnerBlock = 192;

// The block that begins at this place of the inner dimension. What is between one and two blocks is two halves.
constexpr int64_t inner_block(int64_t inner, int64_t place) {
  const bool is_halved = inner > kMaxInnerBlock && inner < 2 * kMaxInnerBlock;
  const int64_t block = is_halved ? inner / 2 : kMaxInnerBlock;
  return block < inner - place ? block : inner - place;
}

// Whether ours has the bits of BLAS for such a product, as this process is set up: asked of BLAS once, with a few
// products of random numbers.
bool has_gemm(int64_t rows, int64_t columns, int64_t inner);
// Whether it still has, with this number of intra-op threads. BLAS gives each some fours of rows, or sixteens of
// columns, and has other kernels for less than one of four rows, or twelve columns, which the last thread may be left
// with.
constexpr bool has_bits_of_blas(int64_t rows, int64_t columns, int num_threads) {
  const bool has_rows = num_threads == 1 || rows % 4 == 0 || rows >= int64_t{8} * num_threads;
  const bool has_columns =
      num_threads <= 2 || columns % 16 == 0 || columns % 16 >= 12 || columns >= int64_t{32} * num_threads;
  return has_rows && has_columns;
}

// In parallel if there is enough to do: the bits do not depend on it.
void run(const Gemm& gemm);

} // namespace lazyplug::kernels
