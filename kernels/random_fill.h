#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lazyplug::kernels {

// Independent random numbers, which depend on the seed and their places alone: words of Philox4x32-10 (Salmon, Moraes,
// Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011), the seed its key.
struct RandomFill {
  enum class Kind : uint8_t {
    kBernoulli, // 1 with probability a, up to 2^-32, else 0
    kUniform,   // from a up to b, in 2^24 steps
    kNormal,    // with mean a and standard deviation b, by Box and Muller's method
    kIntegers,  // from a up to b, which are integers and at most 2^32 apart
  } kind;
  uint64_t seed;
  double a;
  double b;
};

bool can_fill(RandomFill::Kind kind, c10::ScalarType dtype);

// Writes n elements, in parallel if there is enough to do.
void fill(const RandomFill& fill, c10::ScalarType dtype, int64_t n, void* out);

} // namespace lazyplug::kernels
