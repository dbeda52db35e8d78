#include "backend/recording/changing_ops.h"

#include <algorithm>

#include "backend/diagnostics/sync_cause.h"
#include "backend/execution/device_context.h"
#include "backend/ops/op_registry.h"
#include "common/running_op.h"
#include "device/fork.h"

namespace lazyplug {

namespace {

void finish_everything(const char* why) {
  if (!is_initialized() || is_in_bad_fork() || running_op()) {
    return;
  }
  const SyncCause cause(why);
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    DeviceContext::get(i).finish();
  }
}

} // namespace

void finish_calls_of(const std::vector<std::string>& ops) {
  if (std::any_of(ops.begin(), ops.end(), find_op)) {
    finish_everything("an op changes");
  }
}

void finish_before_setting() {
  finish_everything("a setting changes");
}

void note_new_kernels(const std::vector<std::string>& ops) {
  for (const std::string& name : ops) {
    if (OpInfo* op = find_op(name)) {
      op->note_new_kernels();
    }
  }
}

} // namespace lazyplug
