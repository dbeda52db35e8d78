#pragma once

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The overload of a pointwise op with one result that takes the op's arguments and then `out`, where it writes the
// result; null if there is none that gives the same bits. `out` may be one of the operands, unless they are complex.
// Structured kernels are such: one implementation serves both overloads. Thread-safe.
const c10::OperatorHandle* find_out_variant(const OpInfo& op);

} // namespace lazyplug
