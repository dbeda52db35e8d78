#include "backend/caches/computation_cache.h"

#include "common/config.h"

namespace lazyplug {

ComputationCache& computation_cache() {
  // Never destroyed: worker threads and static destructors may still use it.
  static auto* cache = new ComputationCache(config().cache_size.get());
  return *cache;
}

Hash128 graph_hash(const Trace& trace, c10::ArrayRef<Value> roots) {
  Hash128 hash = trace.hash();
  for (Value root : roots) {
    hash = hash_combine(hash, static_cast<uint64_t>(root.node) << 32 | root.output);
  }
  return hash;
}

} // namespace lazyplug
