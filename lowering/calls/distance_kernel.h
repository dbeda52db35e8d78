#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The exact kernel (lowering/nodes/exact_kernels.h) of aten::_euclidean_dist, as torch.cdist calls it for more than 25
// points, of two small matrices of float32 or float64 without gaps. PyTorch's makes ten calls of it.
bool run_euclidean_dist(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
