#pragma once

#include "lowering/computation.h"

namespace lazyplug {

// Computes a call on CPU tensors, as a graph of this call alone would: takes the arguments from the stack, and leaves
// the results.
void run_call(const OpInfo& op, c10::Stack& stack);
// False: that is nothing but to call PyTorch's kernel.
bool may_have_kernel_of_ours(const OpInfo& op);

// What `roots` depend on, to be run call by call as it was recorded: with the bits, the errors and the layouts of the
// compiled graph, in about the time that eager PyTorch takes, and without what it takes to compile. For what is not
// expected to come again. Lives no longer than the trace, whose leaves and scalars it does not need.
ComputationPtr make_interpreter(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
