#include "backend/caches/signature_cache.h"

#include "common/config.h"
#include "common/lru_cache.h"
#include "common/metrics.h"
#include "lowering/ir/finish_signature.h"

namespace lazyplug {
namespace {

using SignatureCache = LruCache<Hash128, SignaturePtr>;

SignatureCache& signature_cache() {
  static auto* cache = new SignatureCache(config().signature_cache_size.get());
  return *cache;
}

} // namespace

std::optional<SignaturePtr> find_signature(const Hash128& key) {
  return signature_cache().find(key);
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
