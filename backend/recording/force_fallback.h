#pragma once

#include "lowering/ir/op_info.h"

namespace lazyplug {

// True if the flag `force_fallback` selects the op: by its name with or without
// overload ("aten::add.Tensor", "aten::add"), by a glob ("aten::conv*"), or by
// "all". Takes effect for ops recorded after the flag was set.
bool is_fallback_forced(const OpInfo& op);

// Whether the flag selects any op.
bool is_any_fallback_forced();

// Reads the flag now rather than at the next op, and so warns now of what
// selects no op.
void read_forced_ops();

} // namespace lazyplug
