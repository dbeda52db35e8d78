#pragma once

#include <ATen/core/stack.h>

#include "backend/inference/read_call.h"
#include "backend/ops/op_table.h"

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

// The rules that the table of ops (backend/registration/op_table.h) refers to.
// Numbers are places among the call's tensors, unless they are said to be arguments.
namespace layout_rules {

// As the Meta kernel has it: of ops that are tagged as pointwise, but are not one loop.
c10::DimVector as_promised(const Answered& call);
c10::DimVector contiguous(const Answered& call);
// Like the operands of a loop over all of them together, as ops are that are tagged
// as pointwise.
c10::DimVector iterated(const Answered& call);
// Like this tensor, if that is dense.
LayoutRule like(size_t tensor);
// In this tensor's memory format.
LayoutRule in_format_of(size_t tensor);
// The same for images of three dimensions. If they are no batch, another tensor may decide.
LayoutRule in_volume_format_of(size_t tensor, size_t without_batch);
// Of a convolution, whose weight follows the input: the result, and the weight's
// gradient. `stride` is an argument, the first of the numbers.
LayoutRule convolved(size_t input, size_t stride);
LayoutRule convolved_weight(size_t input, size_t stride);

} // namespace layout_rules

} // namespace lazyplug
