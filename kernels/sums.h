#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lazyplug::kernels {

enum class Summed : uint8_t {
  kSum,
  kMean,
  kNorm, // the root of the sum of squares; of rows of float32 only
};

// Over the middle one of three dimensions, of memory without gaps.
struct Reduction {
  int64_t outer; // this or `inner` is 1
  int64_t reduced;
  int64_t inner;
  Summed makes;
};

// Sums up float32 or float64, in the order in which the CPU's kernel does if one thread runs it, hence with its bits;
// those of norms depend on how PyTorch has been compiled, and are worth a trial. `out` has outer * inner elements; none
// of the three sizes is 0, and `reduced` is not 1.
void reduce(const Reduction& reduction, c10::ScalarType dtype, const void* from, void* out);

} // namespace lazyplug::kernels
