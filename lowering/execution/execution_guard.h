#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lazyplug {

// Within its scope the thread dispatches straight to backend kernels: no
// autograd, no autocast, no Python mode and no functorch layer of the user who
// happened to trigger the work sees the calls.
class ExecutionGuard {
 public:
  ExecutionGuard();

 private:
  c10::impl::ForceDispatchKeyGuard guard_;
};

} // namespace lazyplug
