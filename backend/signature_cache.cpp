#include "backend/signature_cache.h"

#include "backend/compile_storms.h"
#include "backend/make_signature.h"
#include "backend/varying_sizes.h"
#include "common/config.h"
#include "common/lru_cache.h"
#include "common/metrics.h"
#include "lowering/finish_signature.h"

namespace lazyplug {
namespace {

// A null entry stands for "cannot be traced".
using SignatureCache = LruCache<Hash128, SignaturePtr>;

SignatureCache& signature_cache() {
  static auto* cache = new SignatureCache(config().signature_cache_size.get());
  return *cache;
}

} // namespace

std::optional<Inference> recall(const Call& call) {
  auto found = signature_cache().find(call.key);
  const bool can_be_recorded = found && *found;
  if (can_be_recorded ? goes_with_new_sizes(call) : !found && has_varying_sizes(call)) {
    return Inference{.run_now = "its sizes vary"};
  }
  if ((can_be_recorded || !found) && is_storming() && is_in_storm(call)) {
    return Inference{.run_now = "its program does not repeat"};
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

void remember(const Hash128& key, const SignaturePtr& signature) {
  signature_cache().insert(key, signature);
}

void learn_strides(const Signature& signature, size_t output, c10::IntArrayRef strides) {
  static Counter& learned = counter("LayoutLearned");
  // What has been learned since this signature was looked up must not be lost.
  const auto cached = signature_cache().find(signature.key);
  const Signature& latest = cached && *cached ? **cached : signature;
  constexpr uint32_t kMaxLessons = 8;
  if (latest.lessons == kMaxLessons || latest.outputs[output].strides == strides) {
    return;
  }
  auto better = c10::make_intrusive<Signature>(latest);
  better->outputs[output].strides = strides;
  better->lessons = latest.lessons + 1;
  better->proven.value = true;
  finish_signature(*better);
  learned.add();
  signature.superseded.value = latest.superseded.value = true;
  signature_cache().replace(signature.key, std::move(better));
}

void clear_signatures() {
  signature_cache().clear();
}

} // namespace lazyplug
