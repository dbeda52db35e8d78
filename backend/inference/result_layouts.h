#pragma once

#include <ATen/core/stack.h>

#include "backend/inference/read_call.h"

namespace lazyplug {

// Gives `results`, which a Meta kernel returned for `tensors`, stand-ins for those
// of the call, the strides that the CPU kernel gives its own, where the two are
// known to differ, and makes those undefined that the call's output mask leaves
// out. `knows_loops` says that of elementwise ops they do not. The call's arguments
// are on `stack`.
void lay_out_as_cpu(
    const Call& call,
    const c10::Stack& stack,
    const std::vector<at::Tensor>& tensors,
    bool knows_loops,
    c10::Stack* results);

} // namespace lazyplug
