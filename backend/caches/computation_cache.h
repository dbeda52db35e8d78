#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "backend/diagnostics/origins.h"
#include "common/lru_cache.h"
#include "lowering/computation.h"

namespace lazyplug {

// A compiled graph, and the trace that it was made from, without data.
struct CachedComputation {
  Hash128 hash;
  ComputationPtr computation;
  Trace trace;
  std::vector<Value> roots;
  std::vector<Geometry> inputs; // of the tensors that stand for its leaves
  Provenance provenance;        // of the trace
  uint64_t compiled_in_step = 0;
  mutable std::atomic<uint64_t> num_runs{0};
};
using CachedComputationPtr = std::shared_ptr<const CachedComputation>;
using ComputationCache = LruCache<Hash128, CachedComputationPtr>;

// Compiled graphs of all devices, by graph hash.
ComputationCache& computation_cache();

// Identifies a trace that is asked for `roots`: its ops, constants and layouts,
// but neither its data nor the values of its scalars.
Hash128 graph_hash(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
