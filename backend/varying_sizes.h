#pragma once

#include "backend/call.h"
#include "lowering/ir.h"

namespace lazyplug {

// Programs whose sizes change every time, such as decoders and those that take
// their batches as they come, would compile every step anew. They are known by
// graphs that differ in nothing but sizes, or in constants, which sizes also are
// where tensors are made. As soon as there are too many of these among the last
// to be compiled, calls of the kinds that they consist of run at once when their
// sizes are new, and are recorded from the second time on.
//
// All of it is thread-safe.

// A graph is compiled.
void note_sizes(const Trace& trace);

// Whether to run the call, whose key is unknown, at once. Once for each key.
bool has_varying_sizes(const Call& call);

} // namespace lazyplug
