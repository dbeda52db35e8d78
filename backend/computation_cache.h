#pragma once

#include "common/lru_cache.h"
#include "lowering/computation.h"

namespace lazyplug {

using ComputationCache = LruCache<Hash128, ComputationPtr>;

// Compiled graphs of all devices, by graph hash.
ComputationCache& computation_cache();

// Identifies a trace that is asked for `roots`: its ops, constants and layouts,
// but neither its data nor the values of its scalars.
Hash128 graph_hash(const Trace& trace, c10::ArrayRef<Value> roots);

// The computation of the graph: from the cache, or compiled and put there.
ComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
