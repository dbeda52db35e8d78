#pragma once

#include <cstddef>
#include <cstdint>

namespace lazyplug {

// A program is to compile at its beginning, since it is likely to repeat what it begins with: 48 steps, which end with
// a read, or until one graph has come 40 times, or optimizers have made 48 updates, in 5 steps at least. (There are
// programs that read every tenth loss, and some that repeat nothing.)
//
// A process may run several programs, one after the other, and a program has phases. So it begins anew, even before a
// beginning is over, when six steps in a row, or fewer long ones, have repeated themselves and hardly anything that had
// come before them.
//
// All of it is thread-safe.

// A graph of so many ops comes, compiled or not, which came first in step `first_step` (backend/caches/steps.h), and is
// compiled and runs for the `times`th time, or is not (0).
void note_graph(size_t num_ops, uint64_t first_step, uint64_t times);

// An optimizer makes an update.
void note_update();

bool is_beginning();

// Now it is.
void begin_anew();

} // namespace lazyplug
