#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "kernels/opcode.h"

namespace lazyplug::kernels {

// Over the middle one of three dimensions, of memory without gaps.
struct Reduction {
  int64_t outer; // this or `inner` is 1
  int64_t reduced;
  int64_t inner;
  Opcode makes; // kRowSum, kRowMean, or of rows of float32 kRowNorm: the root of the sum of squares
};

// Whether norms have the bits of PyTorch's, which are compiled with and without what multiplies and adds at once: it is
// tried, the first time.
bool has_norms_of_pytorch();

// Sums up float32 or float64, in the order in which the CPU's kernel does if one thread runs it, hence with its bits,
// but for norms if there are none. `out` has outer * inner elements; none
// of the three sizes is 0, and `reduced` is not 1.
void reduce(const Reduction& reduction, c10::ScalarType dtype, const void* from, void* out);

} // namespace lazyplug::kernels
