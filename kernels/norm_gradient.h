#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// The gradients of a layer norm of float32 rows without gaps, times a weight: those of the rows, of the weight, and of
// the bias, which are sums over all rows.
struct NormGradient {
  int64_t num_rows;
  int64_t row_length;
  const float* gradient; // of the result
  const float* rows;
  const float* mean; // one for each row
  const float* rstd; // likewise
  const float* weight;
  float* of_rows; // null: nobody wants it
  float* of_weight;
  float* of_bias;
};

// In parallel if there is enough to do. The bits do not depend on it, nor on the target: each sum over a row has the
// order of kernels/row_functions.h, and those over rows are of blocks of rows, whose number depends on the rows alone.
void run(const NormGradient& norm);

} // namespace lazyplug::kernels
