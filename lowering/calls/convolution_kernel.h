// Exact kernels (lowering/nodes/exact_kernels.h) of small convolutions of float32 tensors without gaps, and of their
// gradients, or some of these: kernels/convolution.h and kernels/filter_gradient.h. That they have PyTorch's bits is
// found out for each form of calls, and number of intra-op threads, when it comes for the second time (the first, with
// the flag `fusion` at 2): both compute the same random numbers, once.
#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Of aten::convolution.
bool run_convolution(const OpInfo& op, c10::Stack& stack, bool reads_last);

// Of aten::convolution_backward.
bool run_convolution_backward(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
