#include "backend/caches/find_or_compile.h"

#include "backend/caches/beginnings.h"
#include "backend/caches/compile_storms.h"
#include "backend/caches/recompiles.h"
#include "backend/caches/steps.h"
#include "backend/caches/varying_sizes.h"
#include "backend/diagnostics/journal.h"
#include "common/config.h"
#include "common/lru_cache.h"
#include "common/metrics.h"
#include "lowering/ir/trace_slice.h"
#include "lowering/ir/verify.h"

namespace lazyplug {
namespace {

CachedComputationPtr
make_computation(Hash128 hash, const Trace& trace, c10::ArrayRef<Value> roots, const Provenance& provenance) {
  static Counter& compiles = counter("Compile");
  if (config().verify_ir.get()) {
    verify(trace, roots);
  }
  auto graph = std::make_shared<CachedComputation>();
  graph->hash = hash;
  graph->computation = compile(trace, roots);
  graph->trace = copy_without_data(trace);
  graph->roots = roots.vec();
  graph->inputs = input_geometries(trace, roots);
  graph->provenance = provenance;
  graph->compiled_in_step = current_step();
  compiles.add();
  return graph;
}

bool has_changed(uint64_t version, std::atomic<uint64_t>& seen) {
  return seen.load(std::memory_order_relaxed) != version && seen.exchange(version) != version;
}

// Of those that decide what a computation consists of.
uint64_t version_of_flags() {
  return config().disabled_passes.version() + config().fusion.version() + config().side_calls.version();
}

void follow_flags() {
  static std::atomic<uint64_t> size{0};
  static std::atomic<uint64_t> flags{0};
  if (has_changed(config().cache_size.version(), size)) {
    computation_cache().set_capacity(static_cast<size_t>(config().cache_size.get()));
  }
  if (has_changed(version_of_flags(), flags)) {
    computation_cache().clear();
  }
}

CachedComputationPtr find_compiled(const Hash128& hash) {
  static Counter& hits = counter("CacheHit");
  follow_flags();
  const auto found = computation_cache().find(hash);
  if (!found) {
    return nullptr;
  }
  hits.add();
  note_reused(hash);
  note_graph((*found)->trace.nodes().size(), (*found)->compiled_in_step, ++(*found)->num_runs);
  return *found;
}

} // namespace

CachedComputationPtr find_compiled(const Trace& trace, c10::ArrayRef<Value> roots) {
  return find_compiled(graph_hash(trace, roots));
}

CachedComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots, const Provenance& provenance) {
  static Counter& misses = counter("CacheMiss");
  const Hash128 hash = graph_hash(trace, roots);
  if (auto found = find_compiled(hash)) {
    return found;
  }
  misses.add();
  const uint64_t flags = version_of_flags();
  const int64_t start = journal_start();
  CachedComputationPtr graph = make_computation(hash, trace, roots, provenance);
  note_compile(graph, since(start));
  note_sizes(trace);
  note_compiled(hash, trace);
  // Visible to others only now that it is complete.
  CachedComputationPtr kept = computation_cache().insert(hash, std::move(graph));
  if (version_of_flags() != flags) {
    computation_cache().clear(); // somebody may have done so before this one came, which the old flags made
  }
  return kept;
}

bool is_graph_familiar(const Trace& trace, c10::ArrayRef<Value> roots) {
  static auto* lately = new LruCache<Hash128, bool>(1024); // never destroyed, as the computations
  const Hash128 hash = graph_hash(trace, roots);
  const bool is_familiar = lately->find(hash).has_value();
  lately->insert(hash, true);
  return is_familiar;
}

} // namespace lazyplug
