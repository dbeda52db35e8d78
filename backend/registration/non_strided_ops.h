#pragma once

#include <torch/library.h>

namespace lazyplug {

// Gives every ATen op that the CPU knows for sparse, compressed, quantized or
// nested tensors (`key` tells which) a kernel for those of the device.
void register_non_strided_ops(torch::Library& library, c10::DispatchKey key);

// The CPU fallback, for ops that are not ATen's or that no CPU kernel is known of.
void run_non_strided(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, c10::Stack* stack);

} // namespace lazyplug
