#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_set>

namespace lazyplug {

// Decides where a trace is cut that nobody reads as yet. Cuts must repeat: a
// loop whose steps were cut at ever other places would never see the same graph
// twice.
//
// A program that ends its traces itself, by waiting for results, does so at the
// same ops in every step. Between them, traces are cut into chunks by number of
// ops, so that the first ones run while the others are recorded.
//
// If nobody reads, the trace must not grow without bound, and a number of ops
// would hit ever other ones. A place is known by the ops that lead to it (a
// rolling hash over the last `kWindow` of them). The first cut of a loop happens
// wherever the trace reaches its maximum. From then on a trace is cut, once it
// has the minimum size, at a place where it was cut before, that is, a whole
// number of steps later.
class CutPolicy {
 public:
  static constexpr size_t kWindow = 32;

  // Records an op, known by its hash.
  void note(uint64_t op_hash);

  // The sizes that matter, in nodes: of a chunk, and of what a program that ends
  // its traces itself records at most in between.
  struct Limits {
    size_t chunk = 0;
    size_t regular = 0;
  };

  // Whether the trace, which has so many nodes, ends here. It may if it has the
  // minimum size, and must if it has the maximum.
  bool should_cut(size_t nodes, Limits limits, bool may_cut, bool must_cut);

  // The trace is cut: because should_cut() said so, or by the program.
  void cut(size_t nodes, Limits limits);

 private:
  static constexpr size_t kMaxPlaces = 4096;

  void remember(uint64_t place);

  std::array<uint64_t, kWindow> window_{};
  size_t next_ = 0;
  uint64_t place_ = 0;
  size_t uncut_nodes_ = 0;   // in the chunks since the program ended a trace
  bool ends_traces_ = false; // the program does, regularly
  bool is_cutting_ = false;  // should_cut() said so
  std::unordered_set<uint64_t> places_;
  std::deque<uint64_t> oldest_first_;
};

} // namespace lazyplug
