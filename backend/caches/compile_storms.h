#pragma once

#include <c10/util/SmallVector.h>

#include "common/hash.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

// Programs whose steps never repeat, be it that the number of their ops varies,
// or their order, or sizes that recur more seldom than graphs are kept, would be
// compiled for ever. If `max_unused_graphs` graphs are compiled in 256 steps, and
// most of them have run but once, the kinds of calls that these consist of run at
// once from then on. The storm is over when four steps in a row are each like one
// of the last eight, in their calls, and in which of a call's results the others
// read: the program may have changed, or another one begun. If soon
// after that it comes again, for which fewer graphs are enough, twice as many
// such steps end it, up to 16; one of more than 1,024 calls counts for several. So
// a program that never repeats itself compiles so many graphs, and no more.
// Nor does one whose other threads make tensors of the device meanwhile.
// Counter: CompileStorm.
//
// All of it is thread-safe.

// A graph has been compiled.
void note_compiled(const Hash128& graph, const Trace& trace);
// A compiled graph runs again.
void note_reused(const Hash128& graph);

// Whether any call runs at once for this reason.
bool is_storming();
// Of a call's tensors, one after the other. Later storages have greater ones.
using StorageIds = c10::SmallVector<uint64_t, 6>;
// Whether a call of this kind does, if any does; of tensors with so many elements together, in these storages.
bool is_in_storm(const Hash128& kind, int64_t num_elements, const StorageIds& storages);

// Another program begins: if there is a storm, it is over, as when a program repeats itself. For the next one, a few
// graphs less than usual are enough, of this program.
void note_another_program();
// Forgets all graphs, and ends the storm.
void clear_storms();

} // namespace lazyplug
