// Exact kernels (lowering/nodes/exact_kernels.h) of calls that add rows of float32 or float64 to rows of a table, by
// int64 indices, all without gaps. PyTorch's prepare each row, or sort and look up the indices first.
#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// aten::embedding_dense_backward, but not by frequency.
bool run_embedding_gradient(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::_embedding_bag and aten::_embedding_bag_forward_only: sums and means of fewer than 32,768 elements, without
// weights of their own. The bags follow each other.
bool run_embedding_bag(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_embedding_bag_only(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::_embedding_bag_backward of the same, if the gradient is dense. BLAS adds up its rows, in an order that a sort
// makes which is not stable; whether it multiplies and adds at once is tried, the first time.
bool run_embedding_bag_gradient(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::index_add and aten::index_add_ of the first dimension, times 1; of rows of less than four elements, up to
// 1,024.
bool run_index_add(const OpInfo& op, c10::Stack& stack, bool reads_last);
bool run_index_add_in_place(const OpInfo& op, c10::Stack& stack, bool reads_last);

// aten::_index_put_impl_, of indices of the first dimension, that adds up, as the gradient of aten::index does;
// likewise.
bool run_index_put_sum(const OpInfo& op, c10::Stack& stack, bool reads_last);

} // namespace lazyplug
