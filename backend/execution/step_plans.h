#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace lazyplug {

// What the parts of a step take, in seconds.
struct StepTimes {
  size_t num_overlapping = SIZE_MAX; // how many of the first ops a worker may compute
  size_t num_awaited = SIZE_MAX;     // how many of the first ops the program waits for; SIZE_MAX: for all
  std::vector<float> recording;      // each op, with what the program does before it
  std::vector<float> kernels;        // each op
};

// What it costs to have a piece of a step computed elsewhere, in seconds.
struct HandOverCosts {
  double recording = 5e-6; // the thread that records stands still
  double waking = 1e-5;    // likewise, if the worker sleeps
  double job = 6e-6;       // a job costs its worker besides the kernels
  double wake = 50e-6;     // until a sleeping worker begins
  double patience = 1e-4;  // for so long it does not sleep
};

// What a step that is cut after these ops takes, in seconds, from the result of one
// like it, just before, to its own. What the program does not wait for is computed
// while the next step is recorded, if the step is cut before it.
double time_of_step(const StepTimes& times, const std::vector<size_t>& cuts, const HandOverCosts& costs);

// After which ops (as counts) a step is best cut, so that its first pieces are
// computed while the rest is recorded; none if that gains less than a tenth, and
// less than 0.2 ms.
std::vector<size_t> best_cuts(const StepTimes& times, const HandOverCosts& costs);

// Plans where the steps of a stream are cut. A step is what the program records
// until it waits for a result itself, and is known by its ops.
//
// A step that comes again is timed, whole, a few times. If cuts promise a gain, it
// is on trial: cut and whole by turns, and it stays cut only if that has indeed
// been faster, by more than chance, and by 15%, or 0.2 ms of a long step. Whoever disturbed the machine meanwhile would
// have decided for ever, so there are a few more trials, ever later; a step that is cut must still be faster for it,
// since it takes another processor. If another step follows, its time counts, too: it may wait for what has been left
// to the worker. Where it is cut is planned twice at most, soon after it has first been seen, so that the graphs that
// are compiled for it are few: a long step, which may be an epoch, once, as soon as it has come. A step that is a small
// part of what is recorded is not planned. Where steps begin alike, such as an evaluation and a training step, the cuts
// of each are those of the others, too: a trial compares a step with its own cuts and without, and a step that has to
// be timed is not cut at all meanwhile. Counters: StepsOnTrial, StepsCut, StepsKeptWhole; StepsReplanned counts those
// that a later trial has settled otherwise. Steps that come seldom are not planned, since this compiles; nor is,
// when the program's beginning is over, any that has not been by then; trials that have hardly begun then are given up.
//
// Not thread-safe: guarded by its stream's lock.
class StepPlans {
 public:
  using StepId = uint64_t;               // never 0
  using Clock = std::function<double()>; // seconds

  static constexpr size_t kTimed = 2;  // steps whose ops are timed before they are planned
  static constexpr size_t kTrials = 9; // of a step whole, and of it cut
  // Are enough if none contradicts. They are of two stretches each: who takes a processor away takes it for longer than
  // one.
  static constexpr size_t kClearTrials = 6;
  static constexpr size_t kWarmUps = 2;    // before they count: graphs are compiled
  static constexpr size_t kMaxSteps = 256; // are known; a half of them, the oldest, make room for others
  static constexpr size_t kMaxTimedOps = 4096;
  static constexpr size_t kLongStep = 1024;  // ops: planned when it has come once, and never anew
  static constexpr size_t kMediumStep = 256; // ops: planned when it has come twice, as one that comes seldom
  static constexpr size_t kLeastShare = 16;  // a step is planned that is at least this part of the ops
  static constexpr size_t kMostApart = 8;    // and comes after so many steps at most; anew, only one that comes
  static constexpr size_t kNear = 2;         // after so many: a program is to compile at its beginning only
  static constexpr size_t kQuiet = 16;       // after so many settled steps, recording is not timed
  static constexpr size_t kMaxFreed = 3;     // how often others are not cut, so that a step can be timed
  // After how many steps one that is settled comes on trial again, if it is cut, or the program begins.
  static constexpr size_t kRetrials[] = {12, 150, 2'000};

  StepPlans();
  explicit StepPlans(Clock now) : now_(std::move(now)) {}

  // An op is recorded, known by its hash. `may_overlap`: a worker may compute it
  // while recording goes on.
  void note(uint64_t op_hash, bool may_overlap);
  // Whether the step is cut after the op that was noted last.
  bool cuts_here() const {
    return !cuts_.empty() && uncut_steps_ == 0 && cuts_.count(prefix_) != 0;
  }
  // Whether the ops of the step are timed.
  bool is_timing() const {
    return is_timed_;
  }
  // The step is cut here, for another reason: it teaches nothing.
  void disturb() {
    is_disturbed_ = true;
  }
  // The program, whose beginning it may be (backend/caches/beginnings.h), ends the step, and waits for so many of its
  // first ops. Returns its number if its kernels should be timed, or 0.
  StepId end_step(size_t num_awaited = SIZE_MAX, bool is_beginning = true);
  // It waits for more, before it goes on: so many first ops of the step that it has ended.
  void note_also_awaited(size_t num_awaited);
  // The program has the result that it ended the step for.
  void note_result() {
    boundary_ = now_();
  }
  // What each op's kernels have taken, in seconds, and the job besides.
  void note_kernels(StepId step, std::vector<float> kernels, double job_cost);
  // What else it costs; of a step planned from now on.
  HandOverCosts& costs() {
    return costs_;
  }

 private:
  enum class State : uint8_t { kTimed, kTrial, kSettled };
  struct Step {
    State state = State::kTimed;
    size_t seen = 0; // in this state
    size_t num_retrials = 0;
    size_t planned_when_seen = 0; // so often
    bool is_rare = false;
    uint64_t ended_at = 0; // counting all ops
    uint64_t first_at = 0; // counting all steps
    uint64_t num_seen = 0; // in all states
    StepId follower = 0;   // the step that came next, the last time; 0: not known
    bool is_cut = false;   // is settled so
    bool cuts_now = false; // its own cuts are made
    size_t num_freed = 0;
    size_t num_trials = kTrials; // that it is to have
    StepTimes times;
    std::vector<double> whole; // durations
    std::vector<double> cut;
    std::vector<StepId> cuts; // prefixes

    // Whether it comes, in the mean, after more than so many steps.
    bool is_apart(uint64_t num_steps, uint64_t distance) const {
      return num_steps - first_at > distance * (num_seen - 1);
    }
    bool is_long() const {
      return planned_when_seen == 1;
    }
    // Its ops are not yet to be timed.
    bool is_waiting() const {
      return state == State::kTimed && seen + kTimed + kWarmUps < planned_when_seen;
    }
  };

  // How long a step on trial has taken.
  struct Trial {
    StepId step = 0; // 0: none
    size_t seen = 0;
    double seconds = 0;
    bool was_uncut = false;
  };

  void begin_step();
  void end_beginning();
  void forget_oldest();
  void note_follower();
  void note_duration(StepId id, Step& step, double seconds);
  void plan(Step& step);
  void settle(Step& step, bool cut);
  void try_again(Step& step, bool is_beginning);
  void cut_from_now_on(Step& step, bool cut);
  void note_trial(const Trial& trial);

  Clock now_;
  HandOverCosts costs_;
  std::unordered_map<StepId, Step> steps_;
  std::unordered_map<StepId, size_t> cuts_; // of how many steps that are cut
  size_t uncut_steps_ = 0;                  // so many steps to come are whole
  bool is_beginning_ = true;                // of the program
  // The step that is being recorded.
  StepId prefix_ = 0;      // of its ops so far
  uint64_t all_ops_ = 0;   // of all steps that have ended
  uint64_t num_steps_ = 0; // which are so many
  size_t num_ops_ = 0;
  bool is_disturbed_ = false;
  bool is_timed_ = false;
  bool was_cut_ = false;   // as planned
  bool was_uncut_ = false; // though it might have been planned
  size_t num_overlapping_ = 0;
  double last_op_ = 0;
  std::vector<float> recording_;
  std::vector<StepId> prefixes_;
  // The one before.
  StepId ended_ = 0;        // 0: it teaches nothing
  StepId before_ended_ = 0; // likewise
  Trial waiting_;           // for the time of the step that follows
  size_t num_settled_ = 0;  // steps in a row
  double started_ = 0;
  double boundary_ = 0; // where the one ends, and the next begins
};

} // namespace lazyplug
