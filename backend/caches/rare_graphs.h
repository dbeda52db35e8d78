#pragma once

#include "lowering/ir/trace.h"

namespace lazyplug {

// What a program does for the first time when its beginning (backend/caches/beginnings.h) is over, such as the last
// batch of an epoch, the end of an episode, or a number of rows that had not come before, may never come again, and to
// compile it would take as long as to run it some ten times. So a trace that is not in the cache then is run call by
// call (lowering/execution/interpreter.h), which where tensors are small takes hardly longer. It is compiled only when
// it comes for the 257th time in short order, for the 513th, if it comes now and then, or for the 1,024th in all. Where
// tensors are large, what fused groups save of one run soon pays for compiling: each run then counts as so many as its
// results are times larger, up to 128, so that it is compiled when it comes for the third time at the earliest.
//
// The flag `compile` says that all are compiled when they come first, or that none is.
// Counter: RunUncompiled.
//
// All of it is thread-safe.

// Whether to run a trace, which has not been compiled and which this notes, call by call.
bool runs_uncompiled(const Trace& trace, c10::ArrayRef<Value> roots);

// Forgets what has come.
void clear_rare_graphs();

} // namespace lazyplug
