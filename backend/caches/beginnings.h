#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace lazyplug {

// A program is to compile at its beginning, since it is likely to repeat what it begins with: 48 steps, which end with
// a read, or until one graph has come 40 times, or optimizers have made 48 updates, in 5 steps at least. (There are
// programs that read every tenth loss, and some that repeat nothing.)
//
// A process may run several programs, one after the other, and a program has phases. So it begins anew, even before a
// beginning is over, when a graph that is not known reads only tensors that are newer than all that the program before
// has had, whose graphs had for a while all read some that were not; when for the first time in 16 steps nothing has
// been left in the device's memory, unless what came then was the same graph the last two times, as of a program that
// leaves nothing behind and reads often; or, 96 steps after another one has been noticed otherwise, or later, when six
// steps in a row, or fewer long ones, have repeated themselves and hardly anything that had come before them.
//
// All of it is thread-safe.

// A graph of so many ops comes, compiled or not, which came first in step `first_step` (backend/caches/steps.h), and is
// compiled and runs for the `times`th time, or is not (0).
void note_graph(size_t num_ops, uint64_t first_step, uint64_t times);

// The tensors of a graph, by the numbers of their storages, which grow.
struct Ages {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t oldest_read = kNone; // of those that it reads, if it reads any
  uint64_t newest = 0;          // of all that there were when it was cut
  uint64_t times_empty = 0;     // how often there has been nothing in the memory of the device,
  size_t device = 0;            // which is this one
  uint64_t graph = 0;           // what tells it from others; 0: nothing does
};
// A graph of such tensors comes, which is known, since it has been compiled, or is not. Returns whether another program
// begins with it.
bool note_ages(const Ages& ages, bool is_known);

// An optimizer makes an update.
void note_update();

bool is_beginning();

// Now it is.
void begin_anew();

} // namespace lazyplug
