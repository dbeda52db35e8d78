#pragma once

#include <memory>

#include "lowering/calls/small_calls.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Calls of one function of whole rows, such as softmax, whose result is as large as its tensors. Null: the op is none.
std::unique_ptr<const SmallCalls> make_small_rows(const OpInfo& op);

} // namespace lazyplug
