#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Exact kernels (lowering/nodes/exact_kernels.h) for one index, a vector of int64 or a mask of the first dimensions,
// into a tensor without gaps: rows are copied. PyTorch's go element by element, after they have taken microseconds to
// prepare, and make vectors of a mask first.

// aten::index.Tensor.
bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool reads_last);
// aten::index_put_ of one number, or of as many rows, of the same dtype, that are not added up.
bool run_put_rows(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
