#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_set>

#include "backend/execution/step_plans.h"

namespace lazyplug {

// Decides where a trace is cut that nobody reads as yet. Cuts must repeat: a
// loop whose steps were cut at ever other places would never see the same graph
// twice. So they depend on what is recorded; on time only as far as plans do,
// which are made once.
//
// A program that ends its traces itself, by waiting for results, does so at the
// same ops in every step. Between them, traces are cut so that the first pieces
// run while the others are recorded: where the step's plan says so (StepPlans),
// or, with `chunk_ops`, into chunks: short ones first, so that the worker soon
// has something to do, and longer and longer ones.
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

  // How long a trace is.
  struct Size {
    size_t nodes = 0;
    size_t bytes = 0; // that it allocates
  };

  struct Limits {
    size_t chunk_ops = 0; // the least of a chunk, and of what is left after it; 0: no chunks
    size_t min_nodes = 0; // from here on a trace ends at a known place
    size_t max_nodes = 0; // here it ends
    size_t max_bytes = 0; // or here; from a quarter of it on, at a known place
  };

  // Records an op, known by its hash; for `may_overlap` see StepPlans.
  void note(uint64_t op_hash, bool may_overlap = true);

  // Whether the trace ends here.
  bool should_cut(Size trace, const Limits& limits);

  // The trace ends here, whatever should_cut() would say, and the step goes on.
  void cut_here() {
    is_cutting_ = true;
    plans_.disturb();
  }

  // The trace is cut: because it was to end here, or by the program, which ends
  // the step, and waits for so many of the trace's first ops. (Of a step of several
  // traces nobody asks: only whole ones are timed.)
  void cut(const Limits& limits, size_t num_awaited = SIZE_MAX);

  // The step that the last cut has ended, if its kernels should be timed, or 0.
  StepPlans::StepId timed_step() const {
    return timed_step_;
  }
  // Whether steps are cut as planned, from the next one on.
  void use_plans(bool use) {
    uses_plans_ = use;
  }
  StepPlans& plans() {
    return plans_;
  }

  // The number of the step, from 1 on. A step without ops is none.
  uint64_t step() const {
    return step_number_;
  }

 private:
  static constexpr size_t kMaxPlaces = 4096;

  bool is_chunk(const Limits& limits) const;
  void remember(uint64_t place);
  void end_step(const Limits& limits, size_t num_awaited);

  std::array<uint64_t, kWindow> window_{};
  size_t next_ = 0;
  uint64_t place_ = 0;
  uint64_t step_number_ = 1;
  // Ops, not nodes: a step has the more leaves, the more often it is cut.
  size_t chunk_ops_ = 0; // since the last cut
  size_t step_ops_ = 0;  // since the program itself ended a trace
  // A long step may be followed by short ones, that print what it has found.
  std::array<size_t, 8> last_steps_{};
  size_t next_step_ = 0;
  size_t expected_ops_ = 0; // the longest of them
  bool is_cutting_ = false; // should_cut() or cut_here() said so
  bool is_planned_ = false; // because of a plan
  bool uses_plans_ = false;
  StepPlans plans_;
  StepPlans::StepId timed_step_ = 0;
  std::unordered_set<uint64_t> places_;
  std::deque<uint64_t> oldest_first_;
};

} // namespace lazyplug
