#pragma once

#include "backend/ops/call.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

// Programs whose sizes change every time, such as decoders and those that take
// their batches as they come, would compile every step anew. They are known by
// graphs that differ in nothing but sizes, or in constants, which sizes also are
// where tensors are made. As soon as there are too many of these among the last
// to be compiled, calls of the kinds that they consist of run at once when their
// sizes are new, and are recorded from the second step on in which they come: the
// layers of a model have the same sizes, and do not make them common. As long as
// each step brings new sizes, calls of these kinds run at once even if they have
// been recorded before: graphs of what lies between two that run at once are too
// small to be worth their while.
//
// All of it is thread-safe.

// A graph is compiled.
void note_sizes(const Trace& trace);

// Whether to run the call, whose key is unknown, at once. For each key, in one
// step only.
bool has_varying_sizes(const Call& call);

// Whether this step, or the last one, had calls that are new in this sense. If
// not, no call runs at once that has been recorded before.
bool are_sizes_new();
// Whether to run a call at once that has been recorded before.
bool goes_with_new_sizes(const Call& call);

// Forgets all programs and sizes.
void clear_sizes();

} // namespace lazyplug
