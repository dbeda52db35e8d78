#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// A float32 product that is computed by this package: result = start + a * b. Where it has the bits of BLAS, and is
// quicker, kernels/blas_kernels.h says.
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
  int64_t result_row;    // stride
  int64_t longest_block; // each sum is of blocks of so many products, added up with fused multiply-adds, in order
};

// What one thread computes of it.
struct GemmBlock {
  int64_t first_row;
  int64_t end_row;
  int64_t first_column;
  int64_t end_column;
};

// Memory is set aside for blocks of so many.
constexpr int64_t kLongestBlock = 384;

// The block that begins at this place of the inner dimension. What is between one and two blocks is two halves.
constexpr int64_t inner_block(int64_t inner, int64_t place, int64_t longest) {
  const bool is_halved = inner > longest && inner < 2 * longest;
  const int64_t block = is_halved ? inner / 2 : longest;
  return block < inner - place ? block : inner - place;
}

// In parallel if there is enough to do: the bits do not depend on it.
void run(const Gemm& gemm);

} // namespace lazyplug::kernels
