#pragma once

#include "lowering/ir/trace.h"

namespace lazyplug {

// A program is to compile at its beginning. What it does for the first time later on, such as the last batch of an
// epoch, the end of an episode, or a number of rows that had not come before, may never come again, and to compile it
// would take as long as to run it some ten times. So after 16 steps a trace that is not in the cache is run call by
// call (lowering/interpreter.h), and compiled only when it comes for the fourth time, each within a few steps of the
// last, as where another program begins, or for the 16th time in all: what is lost by waiting is then about what
// compiling takes.
//
// The flag `compile` says that all are compiled when they come first, or that none is.
// Counter: RunUncompiled.
//
// All of it is thread-safe.

// Whether to run a trace, which has not been compiled and which this notes, call by call.
bool runs_uncompiled(const Trace& trace, c10::ArrayRef<Value> roots);

// Forgets what has come, and begins anew.
void clear_rare_graphs();

} // namespace lazyplug
