#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Where a program reads a result every few ops, as line searches do, each read costs as much as it saves to have seen
// these ops together. Such a program is tried: stretches of it are recorded, and run at once, by turns, and what is
// faster, if that is clear, stays, for ever longer: then it is tried again. Steps of much computation are not tried. A
// step is known by its ops, whatever their order, and by how large its largest tensor is, about: so another program,
// or another phase of this one, or the same with more data, has a trial of its own. Which of the two is chosen changes
// no result. Counters: ShortStepsTried, ShortStepsAtOnce (trials that ended so).
//
// The flag `run_at_once` says that all calls run at once, or that none does for this reason.
//
// All functions are thread-safe.

// This thread has recorded a call of an op, or run it at once. `num_elements`: of its largest argument.
void note_call(const OpInfo& op, int64_t num_elements);
// The program has read a result, or marked a step.
void note_end_of_step();
// Whether calls that could be recorded run at once for this reason, now.
bool runs_steps_at_once();
inline constexpr const char* kReadsOften = "its program reads a result every few ops";
// Forgets all trials.
void clear_short_steps();

// What has been called in a step.
class StepSoFar {
 public:
  void note(const OpInfo& op, int64_t num_elements) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15; // 2^64 by the golden ratio
    ops_ += (reinterpret_cast<uintptr_t>(&op) >> 4) * kOdd;
    num_elements_ = std::max(num_elements_, num_elements);
  }
  // Of its ops, whatever their order, and its largest tensor: that is as large as another one up to the grain of
  // PyTorch's loops, and from there within a factor of four.
  uint64_t id() const;
  bool is_empty() const {
    return ops_ == 0;
  }

 private:
  uint64_t ops_ = 0;
  int64_t num_elements_ = 0;
};

// The trials, apart from clocks and counters.
class ShortSteps {
 public:
  using Clock = std::chrono::steady_clock;

  // What there has been up to now.
  struct Totals {
    int64_t ops = 0;
    int64_t changes = 0; // graphs compiled, and steps whose cuts are tried: what is recorded becomes faster
    Clock::time_point time;
  };
  using StepId = uint64_t;

  // A step ends here. Returns whether the calls of the next one run at once.
  bool end_step(StepId id, const Totals& totals);

  // How many trials there have been, and how many of them have ended with calls at once.
  int64_t num_trials() const {
    return num_trials_;
  }
  int64_t num_won() const {
    return num_won_;
  }

 private:
  // Steps that are looked at before a trial, and ops that they have in the mean at most: longer ones gain from being
  // seen as a whole. A loop around one step has soon shown whether it does.
  static constexpr int64_t kWatched = 32;
  static constexpr int64_t kMostOps = 32;
  static constexpr int64_t kMostOpsOfLoop = 128;
  // Longer ones take as long as their kernels.
  static constexpr std::chrono::microseconds kMostTime{500};
  // Unless each op of a loop around one step takes less than this, and they are not too many: it reads and writes
  // single elements.
  static constexpr std::chrono::microseconds kTimeOfTinyOp{3};
  static constexpr int64_t kMostTinyOps = 1024;
  // A program is another one if more than this part of its steps is not known, or so many as are watched in a row.
  static constexpr int64_t kShareUnknown = 4;
  // Ops of a stretch: a line search has some hundred in one step of its optimiser. Or steps, for each that is not like
  // another one; a loop around one step has shown all that it is.
  static constexpr int64_t kStretch = 1024;
  static constexpr int64_t kStepsOfEach = 256;
  static constexpr int64_t kStepsOfLoop = 48;
  static constexpr int64_t kStepsOfSlowerLoop = 16; // in the way that has been slower so far
  static constexpr std::chrono::milliseconds kLongestStretch{100};
  // A trial ends when so many stretches at once say that it is faster than the recorded ones before and after them,
  // or so many that it is not, or that it is faster than one of the two.
  static constexpr int kWins = 3;
  static constexpr int kLosses = 3;
  static constexpr int kMostUnclear = 5;
  // A stretch with changes tells nothing; after so many of them it is not the time for a trial.
  static constexpr int kMostSpoiled = 5;
  // Of the time; less is noise.
  static constexpr double kGain = 0.05;
  // No noise: one stretch that says so is enough, since it is what had better not be done.
  static constexpr double kClearLoss = 1.5;
  // Such a stretch counts twice.
  static constexpr double kClearGain = 0.2;
  // Steps until the next trial.
  static constexpr int64_t kFirstRest = 20'000;
  static constexpr int64_t kGrowth = 4;

  // Steps that have been tried and are known.
  static constexpr size_t kMaxKnown = 1024;
  // In a row: so many others may go with these.
  static constexpr int64_t kMostStrangers = 4;

  enum class Phase : uint8_t { kWatching, kRecording, kAtOnce, kResting };

  struct Stretch {
    double seconds = 0; // per op
    bool is_of_loop = false;
    bool is_one_step = false;
  };

  void begin(Phase phase, const Totals& totals);
  void end_window(const Totals& totals);
  // Where all steps are alike, by the median of their times, which interrupts do not change. Else by the sum without
  // the longest, in which the program may have paused.
  double seconds_per_op(const Totals& totals);
  void note_tried(StepId id);
  void begin_trial(const Totals& totals);
  bool has_another_begun() const;
  bool is_another_program() const;
  bool is_at_end_of_stretch(const Totals& totals) const;
  int64_t most_steps() const; // of a stretch
  void end_stretch(const Totals& totals);
  void judge(const Stretch& at_once, std::pair<double, double> recorded);
  void end_trial();
  void decide(bool is_at_once);
  bool are_tiny(const Totals& totals) const;
  bool are_long(const Totals& totals) const;
  bool take_long(const Totals& totals) const;

  Phase phase_ = Phase::kWatching;
  Totals begin_;               // of what is looked at
  Totals last_;                // when the step before ended
  Clock::duration longest_{0}; // of its steps
  int64_t ops_of_longest_ = 0;
  std::vector<Clock::duration> times_; // of its steps, as long as they are alike and not more than are tried
  int64_t num_steps_ = 0;              // since then
  int64_t num_unknown_ = 0;            // of these
  StepId first_ = 0;                   // of these
  bool are_alike_ = true;              // these
  int64_t num_strangers_ = 0;          // of all, the last ones that are not known
  // Steps of this trial, by the number of the stretch in which they first came, and whether in another one, too.
  struct Tried {
    int stretch;
    bool has_come_again = false;
  };
  std::unordered_map<StepId, Tried> tried_;
  int stretch_ = 0;              // the number of this one
  int64_t num_new_ = 0;          // of its steps, those that first came in it
  int64_t num_new_in_a_row_ = 0; // the last ones of these
  std::unordered_map<StepId, bool> are_at_once_;
  bool is_at_once_ = false;        // while there is no trial
  Stretch recorded_;               // the last one
  std::optional<Stretch> at_once_; // after it, until it is judged
  int wins_ = 0;
  int losses_ = 0;
  int num_unclear_ = 0;
  int num_spoiled_ = 0;
  int64_t rest_ = kFirstRest;
  int64_t rested_ = 0;
  int64_t num_trials_ = 0;
  int64_t num_won_ = 0;
};

} // namespace lazyplug
