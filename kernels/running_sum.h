#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// A sum of many elements of float32 or float64, a piece of them at a time, in the order of sum_row() in
// kernels/cascade_sum.h: see Loops::add_to_sum.
template <typename T>
struct RunningSum {
  static constexpr int kLevels = 4;
  static constexpr int kParts = 4; // vectors that take turns
  static constexpr int kLanes = 32 / sizeof(T);
  static constexpr int kRound = kParts * kLanes;
  // At least, so that there is a vector; and fewer, so that PyTorch's partial sums are of 16 terms, too.
  static constexpr int64_t kMinElements = kLanes;
  static constexpr int64_t kEndElements = int64_t{kRound} << 19;

  alignas(32) T levels[kLevels][kRound] = {};
  alignas(32) T rest[kRound]; // the first are elements that make no whole round yet
  int64_t num_rest = 0;
  int64_t num_rounds = 0;
};

} // namespace lazyplug::kernels
