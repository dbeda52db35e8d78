#pragma once

#include <ATen/core/stack.h>

#include <limits>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Rows that indices name are copied, into and out of tensors without gaps: a mask of the first dimensions, or for some
// neighboring dimensions int64 tensors of one shape, which have no gaps, or one dimension. PyTorch's kernels go element
// by element, after they have taken microseconds to prepare, and make vectors of a mask first.

// aten::index.Tensor: the rows as a new CPU tensor. Undefined if that is PyTorch's, or has more elements.
at::Tensor take_rows(
    const c10::TensorImpl& self,
    c10::ArrayRef<c10::IValue> indices,
    SmallCalls::MemoryOf memory_of,
    int64_t max_elements = std::numeric_limits<int64_t>::max());
// aten::index_put_ of one number, or of as many rows, of the same dtype, that are not added up. False, and nothing
// done, if it is PyTorch's.
bool put_rows(
    const c10::TensorImpl& self,
    c10::ArrayRef<c10::IValue> indices,
    const c10::TensorImpl& values,
    SmallCalls::MemoryOf memory_of);

// The same as exact kernels (lowering/nodes/exact_kernels.h).
bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_put_rows(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::embedding, and aten::index_select of the first dimension.
bool run_embedding(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_index_select(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
