#pragma once

#include <memory>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// The op that returns what this one puts into the tensor that its last argument, out=, names. Null: there is none, or
// its results have other bits, as functions have.
std::unique_ptr<const OpInfo> find_returning(const OpInfo& op);

// The small calls of an op with out=, by those of the op that returns the result: it is copied where it belongs, so
// that `out` may be among what is read. None of these are calls whose `out` has another dtype, size or layout than the
// result, or shares memory with another tensor that is read; and products into their own factors, which are refused.
std::unique_ptr<const SmallCalls> make_small_out(
    std::unique_ptr<const OpInfo> returning,
    std::unique_ptr<const SmallCalls> calls);

} // namespace lazyplug
