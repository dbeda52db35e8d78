#include "lowering/execution/execution_guard.h"

namespace lazyplug {
namespace {

c10::impl::LocalDispatchKeySet kernel_dispatch_keys() {
  const c10::DispatchKeySet included{c10::DispatchKey::BackendSelect};
  const c10::DispatchKeySet excluded = c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
                                       c10::functorch_transforms_ks |
                                       c10::DispatchKeySet({
                                           c10::DispatchKey::ADInplaceOrView,
                                           c10::DispatchKey::Python,
                                           c10::DispatchKey::PythonTLSSnapshot,
                                           c10::DispatchKey::PythonDispatcher,
                                           c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                       });
  c10::impl::PODLocalDispatchKeySet keys;
  keys.set_included(included);
  keys.set_excluded(excluded);
  return c10::impl::LocalDispatchKeySet(keys);
}

} // namespace

ExecutionGuard::ExecutionGuard() : guard_(kernel_dispatch_keys()) {}

} // namespace lazyplug
