#pragma once

#include <array>
#include <memory>
#include <vector>

#include "common/lru_cache.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

// What a stream records next, if it does what it did the last time: the calls
// of the trace that followed when the last few traces were cut before, or, if
// these are new, the last one. (A model has many layers, so one piece of a step
// says little about where in the step it stands.) Where a program leaves what was
// expected, its last three calls tell where it goes on, if it has ever been there.
//
// Only signatures are predicted. They are what is expensive about a call: its
// key and its shapes. The node is recorded as always, so a program that leaves
// the predicted path has lost nothing.
//
// Locking: as the StreamContext that it belongs to.
class Prediction {
 public:
  // The signature expected next, or null.
  const SignaturePtr& next() const;

  // Of the trace that is expected; zero if that is not known.
  Trace::Size expected_size() const {
    return expected_ ? expected_->size : Trace::Size();
  }

  // Tells what was recorded instead, or as expected. After a difference, looks
  // for it nearby, so that a call more or less costs a few calls, then anywhere.
  void note(const SignaturePtr& recorded);

  // The trace is cut: the next one is predicted.
  void cut(const Trace& trace);

 private:
  struct Program {
    Hash128 hash;
    std::vector<SignaturePtr> calls;
    Trace::Size size;
  };
  using ProgramPtr = std::shared_ptr<const Program>;

  static constexpr size_t kRun = 3;
  struct Place {
    ProgramPtr program;
    size_t next;
  };

  bool find_nearby(const SignaturePtr& recorded);
  void find_anywhere();
  static ProgramPtr program_of(const Trace& trace);
  void remember_places(const ProgramPtr& program);
  void learn(const Trace& trace);
  Hash128 context() const;

  // By the hash of a trace, and by that of the last few: the one after it.
  LruCache<Hash128, ProgramPtr> successors_{512};
  // By the hash of a run of calls: where it was last seen.
  LruCache<Hash128, Place> places_{4096};
  std::array<Hash128, kRun> last_calls_; // a ring
  size_t num_calls_ = 0;                 // modulo the ring's size, where the next one goes
  ProgramPtr guess_;                     // when the last trace was cut
  ProgramPtr expected_;
  size_t next_ = 0;
  std::array<Hash128, 4> last_traces_; // the latest first
};

} // namespace lazyplug
