#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The exact kernel (lowering/nodes/exact_kernels.h) of aten::index.Tensor with one index, a vector of int64 or a mask
// of the first dimensions, into a tensor without gaps: rows are copied. PyTorch's goes element by element, after it has
// taken microseconds to prepare, and makes vectors of a mask first.
bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
