#pragma once

#include "backend/caches/computation_cache.h"

namespace lazyplug {

// The computation of a trace that is asked for `roots`, if it is in the cache, or null.
CachedComputationPtr find_compiled(const Trace& trace, c10::ArrayRef<Value> roots);

// From the cache, or compiled and put there.
CachedComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots, const Provenance& provenance = {});

// Whether this was asked of the same graph before, lately: graphs that come in ever other company are recognised by
// what they have in common.
bool is_graph_familiar(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
