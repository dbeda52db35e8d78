#pragma once

#include <cstdint>

#include "kernels/convolution.h"

namespace lazyplug::kernels {

// The gradients of a convolution's filters and bias. Small ones take less time here than with oneDNN, whose bits these
// are: each sum goes with fused multiply-adds through all windows of some images, image by image and row by row; the
// sums of several such parts, of about as many images each, are added up in order.
struct FilterGradient {
  Convolution convolution;         // without filters, bias and result
  const float* gradient = nullptr; // of the result
  int64_t num_parts = 1;
  float* of_filters = nullptr;
  float* of_bias = nullptr; // not wanted
};

// Whether this target has a kernel for it, which takes less time than oneDNN's. That it has the same bits remains to be
// seen: oneDNN chooses the parts.
bool is_quicker_here(const FilterGradient& gradient);

// How many floats `memory` of compute() must have.
int64_t floats_to_compute(const FilterGradient& gradient);

// In parallel if there is enough to do: the bits do not depend on it. `memory` may be anything, and is written. Returns
// false, and the results are none, if gradients have infinities or NaN, and images padding: its zeros are multiplied,
// too.
bool compute(const FilterGradient& gradient, float* memory);

} // namespace lazyplug::kernels
