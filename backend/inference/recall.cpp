#include "backend/inference/recall.h"

#include "backend/caches/compile_storms.h"
#include "backend/caches/short_steps.h"
#include "backend/caches/signature_cache.h"
#include "backend/caches/varying_sizes.h"
#include "backend/execution/lazy_storage.h"
#include "backend/ops/call_kinds.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

StorageIds storages_of(const Call& call) {
  StorageIds ids;
  for (const TensorArg& arg : call.tensors) {
    if (arg.storage) {
      ids.push_back(arg.storage->id());
    }
  }
  return ids;
}

} // namespace

bool may_run_with_program() {
  return runs_steps_at_once() || is_storming();
}

const char* runs_with_program(const PlainCall& call) {
  return runs_steps_at_once()                                                        ? kReadsOften
         : is_storming() && is_in_storm(call.kind, call.num_elements, call.storages) ? "its program does not repeat"
                                                                                     : nullptr;
}

std::optional<Inference> recall(const Call& call) {
  if (may_run_with_program()) {
    const PlainCall as_plain{
        static_cast<c10::DeviceIndex>(call.device),
        kind_of(call),
        call.num_elements,
        storages_of(call)};
    if (const char* reason = runs_with_program(as_plain)) {
      return Inference{.run_now = reason};
    }
  }
  auto found = find_signature(call.key);
  if (found && !*found) {
    return Inference(); // it cannot be recorded
  }
  if (found ? goes_with_new_sizes(call) : has_varying_sizes(call)) {
    return Inference{.run_now = "its sizes vary"};
  }
  return found ? std::optional(Inference{.signature = std::move(*found)}) : std::nullopt;
}

Inference infer(const Call& call, const c10::Stack& stack) {
  check_not_pinned(call.asks_for_pinned); // as torch.empty() does, which is not recorded
  if (auto known = recall(call)) {
    return std::move(*known);
  }
  Inference inference = infer_shapes(call, stack);
  if (inference.resized.empty() && inference.warnings.empty() && !inference.run_now && !inference.error) {
    remember(call.key, inference.signature);
  }
  return inference;
}

} // namespace lazyplug
