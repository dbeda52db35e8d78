#pragma once

#include "lowering/ir/trace.h"

namespace lazyplug {

// A program is to compile at its beginning. What it does for the first time later on, such as the last batch of an
// epoch, the end of an episode, or a number of rows that had not come before, may never come again, and to compile it
// would take as long as to run it some ten times. So a trace that is not in the cache when there have been 48 steps, or
// one graph has come 40 times, is run call by call (lowering/execution/interpreter.h). It is compiled only when it
// comes for the fourth time in short order, as where another program begins, for the ninth time, if it comes now and
// then, or for the 16th in all: what is lost by waiting is then about what compiling takes.
//
// The flag `compile` says that all are compiled when they come first, or that none is.
// Counter: RunUncompiled.
//
// All of it is thread-safe.

// A compiled graph runs for the `times`th time.
void note_run(uint64_t times);
// Whether to run a trace, which has not been compiled and which this notes, call by call.
bool runs_uncompiled(const Trace& trace, c10::ArrayRef<Value> roots);

// Forgets what has come, and begins anew.
void clear_rare_graphs();

} // namespace lazyplug
