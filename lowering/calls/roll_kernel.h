#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The exact kernel (lowering/nodes/exact_kernels.h) of aten::roll along dimensions of a small tensor without gaps.
// PyTorch's makes a concatenation of two parts for each of them.
bool run_roll(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
