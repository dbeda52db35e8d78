#pragma once

#include <torch/library.h>

namespace lazyplug {

// Ops that are called so often that boxing their arguments counts: their
// kernels are unboxed as long as the call is the predicted one, has been recorded
// before or runs at once because its sizes vary, and hand over to the boxed tracer
// otherwise. Rows of the table of ops name them (backend/ops/op_table.h).
void register_fast_ops(torch::Library& library);
// The same ops, in front of autograd: such a call that autograd has no interest
// in does without it. Others go on to PyTorch's autograd kernel.
void register_fast_autograd(torch::Library& library);

} // namespace lazyplug
