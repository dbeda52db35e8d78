// Exact kernels (lowering/nodes/exact_kernels.h) of small losses that are summed up, or their mean taken, and of their
// gradients: of float32 and float64 without gaps. What PyTorch's prepare takes longer than to compute.
#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// aten::nll_loss_forward and aten::nll_loss_backward of a batch of up to 1,024, whose classes have no weights.
bool run_nll_loss(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_nll_loss_gradient(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::mse_loss of up to 4,096 elements; aten::smooth_l1_loss and aten::huber_loss of up to 1,024, whose bound is 1,
// which are the same then. And aten::mse_loss_backward and so on.
bool run_mse_loss(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_mse_loss_gradient(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_smooth_loss(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_smooth_loss_gradient(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
