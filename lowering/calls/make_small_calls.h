#pragma once

#include <memory>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// The small calls of an op: those element by element, products of matrices and vectors, sums and means, searches,
// functions of rows, what joins tensors, what takes and puts rows by indices, and numbers. Null: it has none.
std::unique_ptr<const SmallCalls> make_small_calls(const OpInfo& op);

} // namespace lazyplug
