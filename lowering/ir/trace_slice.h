#pragma once

#include <vector>

#include "lowering/ir/trace.h"

namespace lazyplug {

// A part of a trace, as a trace of its own, and what it is asked for.
struct TraceSlice {
  Trace trace;
  std::vector<Value> roots;
  std::vector<uint32_t> leaves; // which leaf of the whole trace each of its own is
};

// A copy of what `values` depend on: nodes keep their order and get new numbers;
// leaves share their data. The roots are `values` in the copy.
TraceSlice extract(const Trace& trace, c10::ArrayRef<Value> values);

// A copy of the whole trace without data: leaves are undefined, scalars None, and
// lists of them zeros. It keeps the numbers of nodes.
Trace copy_without_data(const Trace& trace);

// Asks a slice for the tensor that reads `value` as `geometry`. Roots stay
// distinct: if the value itself cannot be the root, a new node is.
void add_root(TraceSlice& slice, Value value, const Geometry& geometry);

// For each leaf, the geometry of the tensor that stands for it: the first root
// that is all of the leaf's storage, whatever has been written to it, or else
// the leaf's layout. The layout alone says nothing about the user's tensor: it is that of
// whichever view was read first.
std::vector<Geometry> input_geometries(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
