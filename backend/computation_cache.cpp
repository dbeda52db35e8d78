#include "backend/computation_cache.h"

#include "backend/compile_storms.h"
#include "backend/recompiles.h"
#include "backend/varying_sizes.h"
#include "common/config.h"
#include "common/logging.h"
#include "lowering/subgraph.h"
#include "lowering/verify.h"

namespace lazyplug {
namespace {

CachedGraphPtr make_graph(Hash128 hash, const Trace& trace, c10::ArrayRef<Value> roots) {
  static Counter& compiles = counter("Compile");
  if (config().verify_ir.get()) {
    verify(trace, roots);
  }
  auto graph = std::make_shared<CachedGraph>();
  graph->hash = hash;
  graph->computation = compile(trace, roots);
  graph->trace = copy_without_data(trace);
  graph->roots = roots.vec();
  graph->inputs = input_geometries(trace, roots);
  compiles.add();
  return graph;
}

bool has_changed(const FlagBase& flag, std::atomic<uint64_t>& seen) {
  const uint64_t version = flag.version();
  return seen.load(std::memory_order_relaxed) != version && seen.exchange(version) != version;
}

void follow_flags() {
  static std::atomic<uint64_t> size{0};
  static std::atomic<uint64_t> passes{0};
  if (has_changed(config().cache_size, size)) {
    computation_cache().set_capacity(static_cast<size_t>(config().cache_size.get()));
  }
  if (has_changed(config().disabled_passes, passes)) {
    computation_cache().clear();
  }
}

} // namespace

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

CachedGraphPtr find_or_compile_graph(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Counter& hits = counter("CacheHit");
  static Counter& misses = counter("CacheMiss");
  follow_flags();
  const Hash128 hash = graph_hash(trace, roots);
  if (auto found = computation_cache().find(hash)) {
    hits.add();
    note_reused(hash);
    return *found;
  }
  misses.add();
  CachedGraphPtr graph = make_graph(hash, trace, roots);
  note_compile(graph);
  note_sizes(trace);
  note_compiled(hash, trace);
  // Visible to others only now that it is complete.
  return computation_cache().insert(hash, std::move(graph));
}

ComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  return find_or_compile_graph(trace, roots)->computation;
}

} // namespace lazyplug
