#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "backend/inference/read_call.h"

namespace lazyplug {

// Meta kernels do not check the dtypes that the CPU's kernels check, and so an error would come when a result is read,
// far from the user's line, and what is written in place would be lost. So for each op and each combination of dtypes,
// strings, types of numbers, and ranges of numbers (ops/number_ranges.h), the CPU's kernel is asked once, on tensors of
// one element each.

// All of it may be called from any thread.

// What the kernel has said.
struct DtypeTrial {
  Hash128 key; // of the op and what it may be refused for
  // It may refuse the dtypes of the call: there is no kernel for them; or it does, but not those of other tensors; or
  // nobody knows what its error is about, and there are strings, numbers that are not positive, or other dtypes than
  // float or double for all. The call is better run at once.
  bool may_refuse = false;
  // Of the results, in order, if it has just been asked.
  std::vector<c10::ScalarType> results;
  // It has been found to return other dtypes than the Meta kernel promises.
  bool contradicts_meta = false;
};
DtypeTrial try_dtypes(const Call& call, const c10::Stack& stack);

// Whether the results will have other dtypes than the Meta kernel has promised for the call.
bool contradicts(const DtypeTrial& trial, const Signature& promise);

// The call, of this key, has run: its dtypes are not at fault, unless there was nothing to compute.
void accept_dtypes(const Call& call, const Hash128& key);

} // namespace lazyplug
