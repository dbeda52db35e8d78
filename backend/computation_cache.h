#pragma once

#include <string>
#include <vector>

#include "common/lru_cache.h"
#include "lowering/computation.h"

namespace lazyplug {

// A compiled graph, and the program that it was made from, without data.
struct CachedGraph {
  Hash128 hash;
  ComputationPtr computation;
  Trace trace;
  std::vector<Value> roots;
  std::vector<Geometry> inputs; // of the tensors that stand for its leaves
};
using CachedGraphPtr = std::shared_ptr<const CachedGraph>;
using ComputationCache = LruCache<Hash128, CachedGraphPtr>;

// Compiled graphs of all devices, by graph hash.
ComputationCache& computation_cache();

// Identifies a trace that is asked for `roots`: its ops, constants and layouts,
// but neither its data nor the values of its scalars.
Hash128 graph_hash(const Trace& trace, c10::ArrayRef<Value> roots);

// The computation of the graph, to be run once: from the cache, or compiled and
// put there.
ComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots);

// The same without running it.
CachedGraphPtr find_or_compile_graph(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
