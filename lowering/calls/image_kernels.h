// Exact kernels (lowering/nodes/exact_kernels.h) of float32 images without gaps: poolings in either memory format,
// upsampling of contiguous ones. PyTorch's take up to twenty times as long.
#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Of aten::max_pool2d_with_indices.
bool run_max_pool(const OpInfo& op, c10::Stack& stack, bool reads_last);

// Of aten::avg_pool2d.
bool run_mean_pool(const OpInfo& op, c10::Stack& stack, bool reads_last);

// Of aten::upsample_nearest2d.
bool run_upsample(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
