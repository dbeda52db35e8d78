#pragma once

#include <memory>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// copy_() and fill_() of elements that lie in one line, as Python's `x[i] = y[j]` and `x[:, 0] = 1.` make them. Other
// calls of these ops are computed as any that go element by element. Null: the op is none of these.
std::unique_ptr<const SmallCalls> make_small_copy(const OpInfo& op);

} // namespace lazyplug
