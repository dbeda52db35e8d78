#pragma once

#include <ATen/core/stack.h>

#include "backend/inference/read_call.h"

namespace lazyplug {

// Meta kernels do not check the dtypes that the CPU's kernels check, and so an error would come when a result is read,
// far from the user's line, and what is written in place would be lost. So for each op and each combination of dtypes
// the CPU's kernel is asked once, on tensors of one element each.

// Whether it may refuse the dtypes of the call: it does, but not those of other tensors; or nobody knows what its error
// is about, and the dtypes are other than one floating dtype for all. The call is better run at once. From any thread.
bool may_refuse_dtypes(const Call& call, const c10::Stack& stack);

// The call has run: its dtypes are not at fault.
void accept_dtypes(const Call& call);

} // namespace lazyplug
