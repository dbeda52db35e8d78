#include "backend/inference/recall.h"

#include "backend/caches/compile_storms.h"
#include "backend/caches/short_steps.h"
#include "backend/caches/signature_cache.h"
#include "backend/caches/varying_sizes.h"

namespace lazyplug {

std::optional<Inference> recall(const Call& call) {
  if (runs_steps_at_once()) {
    return Inference{.run_now = kReadsOften};
  }
  if (is_storming() && is_in_storm(call)) {
    return Inference{.run_now = "its program does not repeat"};
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
