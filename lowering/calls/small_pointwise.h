#pragma once

#include <memory>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Calls of one op that is computed element by element, by the instruction that a group would have for it. Null: there
// is none.
std::unique_ptr<const SmallCalls> make_small_pointwise(const OpInfo& op);

} // namespace lazyplug
