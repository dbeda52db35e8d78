#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// Numbers from -1 to 1, to find out whether two kernels have the same bits. A linear congruential generator: the first
// call of a process waits for these.
inline void draw_for_trial(float* out, int64_t n, uint32_t& state) {
  for (int64_t i = 0; i < n; ++i) {
    state = 1664525 * state + 1013904223;
    out[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
  }
}

} // namespace lazyplug::kernels
