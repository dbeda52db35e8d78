#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The exact kernel (lowering/nodes/exact_kernels.h) of aten::native_batch_norm in training, of float32 tensors without
// gaps whose planes have several elements: kernels/batch_norm.h. PyTorch's takes some five times as long. Whether it
// has the same bits is asked of PyTorch once, with random numbers.
bool run_batch_norm(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
