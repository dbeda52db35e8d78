#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Whether calls of the op may be such as run_function() computes.
bool is_function_here(const OpInfo& op);

// Computes a call on CPU tensors as graphs would, if it is one of find_function() (lowering/fusion/pointwise_ops.h), or
// the gradients of a norm (lowering/calls/norm_gradient_kernel.h), and the flag asks for it: takes the arguments from
// the stack and leaves the result. Otherwise does nothing, and returns false.
bool run_function(const OpInfo& op, c10::Stack& stack);

} // namespace lazyplug
