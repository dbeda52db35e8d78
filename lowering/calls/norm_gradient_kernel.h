#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Whether calls of the op may be such as run_norm_gradient() computes: native_layer_norm_backward, where there are
// functions of our own (lowering/fusion/pointwise_ops.h).
bool is_norm_gradient(const OpInfo& op);

// Computes a call on CPU tensors, if these are contiguous float32 rows of 16 to 16,384 elements, over which the norm
// was: takes the arguments from the stack and leaves the results. Otherwise does nothing, and returns false. The same
// wherever it runs, in a graph or at once.
bool run_norm_gradient(c10::Stack& stack);
// Or else calls PyTorch's kernel. As a TorchScript op, which lowered graphs call:
//   lazyplug::norm_gradient(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd,
//       Tensor? weight, Tensor? bias, bool[] output_mask) -> (Tensor, Tensor, Tensor)
void norm_gradient(c10::Stack& stack);

} // namespace lazyplug
