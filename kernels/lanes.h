#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// Of float32 in a vector of the targets that have products and convolutions of their own: `num_lanes` of their loops.
constexpr int64_t kLanesOfAvx2 = 8;
constexpr int64_t kLanesOfAvx512 = 16;

} // namespace lazyplug::kernels
