#include "backend/recording/changing_ops.h"

#include <algorithm>

#include "backend/diagnostics/sync_cause.h"
#include "backend/execution/device_context.h"
#include "backend/ops/op_registry.h"
#include "common/running_op.h"
#include "device/fork.h"

namespace lazyplug {

void finish_calls_of(const std::vector<std::string>& ops) {
  const bool may_be_pending = is_initialized() && !is_in_bad_fork() && std::any_of(ops.begin(), ops.end(), find_op);
  if (!may_be_pending || running_op()) {
    return;
  }
  const SyncCause cause("an op changes");
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    DeviceContext::get(i).finish();
  }
}

void note_new_kernels(const std::vector<std::string>& ops) {
  for (const std::string& name : ops) {
    if (OpInfo* op = find_op(name)) {
      op->note_new_kernels();
    }
  }
}

} // namespace lazyplug
