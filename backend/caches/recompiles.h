#pragma once

#include <string>

#include "backend/caches/computation_cache.h"

namespace lazyplug {

// Finds out why a graph that is about to enter the cache was not there: compares
// it with the cached graph that it has most in common with. Counts the cause as
// "Recompile/<cause>", and remembers it. Compiling has taken `duration_ns`.
void note_compile(const CachedComputationPtr& graph, int64_t duration_ns);

// Why the last graph was compiled: the first node, shape or constant that
// differs from the nearest graph, with both nodes and their Python lines, as far
// as these are known.
std::string explain_recompile();

} // namespace lazyplug
