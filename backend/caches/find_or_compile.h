#pragma once

#include "backend/caches/computation_cache.h"

namespace lazyplug {

// The computation of a trace that is asked for `roots`: from the cache, or compiled and put there.
CachedComputationPtr find_or_compile(const Trace& trace, c10::ArrayRef<Value> roots, const Provenance& provenance = {});

} // namespace lazyplug
