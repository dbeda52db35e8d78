#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lazyplug {

// For tests (the flag `scramble`): kernels may return other strides than was
// expected, and nothing may depend on it. Returns `result`, or, in half of the
// cases, which `seed` decides, a copy that lies otherwise: with its dimensions in
// another order, with gaps, or not at the beginning of its storage.
at::Tensor scramble(const at::Tensor& result, uint64_t seed);

} // namespace lazyplug
