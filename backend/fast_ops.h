#pragma once

#include <torch/library.h>

namespace lazyplug {

// Ops that are called so often that boxing their arguments counts: their
// kernels are unboxed as long as the call is the predicted one, and hand over
// to the boxed tracer otherwise. A table in fast_ops.cpp names them.
void register_fast_ops(torch::Library& library);
bool is_fast_op(const c10::OperatorName& name);

} // namespace lazyplug
