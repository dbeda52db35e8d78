#pragma once

#include <ATen/core/Tensor.h>

namespace lazyplug::native {

// torch.use_deterministic_algorithms with
// torch.utils.deterministic.fill_uninitialized_memory.
bool fills_uninitialized_memory();
// Writes NaN, or the largest number, as eager does then.
void fill_uninitialized(const at::Tensor& tensor);

} // namespace lazyplug::native
