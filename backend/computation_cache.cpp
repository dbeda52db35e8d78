#include "backend/computation_cache.h"

#include "common/config.h"
#include "common/logging.h"
#include "common/metrics.h"
#include "lowering/verify.h"

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

ComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Counter& hits = counter("CacheHit");
  static Counter& misses = counter("CacheMiss");
  static Counter& compiles = counter("Compile");
  const auto capacity = static_cast<size_t>(config().cache_size.get());
  if (computation_cache().capacity() != capacity) {
    computation_cache().set_capacity(capacity);
  }
  const Hash128 hash = graph_hash(trace, roots);
  if (auto found = computation_cache().find(hash)) {
    hits.add();
    return *found;
  }
  misses.add();
  if (config().verify_ir.get()) {
    verify(trace, roots);
  }
  auto computation = compile(trace, roots);
  compiles.add();
  log_debug("compiled graph ", to_hex(hash), ": ", computation->num_ops(), " ops, ", roots.size(), " results");
  // Visible to others only now that it is complete.
  return computation_cache().insert(hash, std::move(computation));
}

} // namespace lazyplug
