#include "backend/caches/short_steps.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "common/metrics.h"

namespace lazyplug {

uint64_t StepSoFar::id() const {
  const auto bits = std::bit_width(static_cast<uint64_t>(num_elements_) / at::internal::GRAIN_SIZE);
  return ops_ + (static_cast<uint64_t>(bits) + 1) / 2;
}

bool ShortSteps::end_step(StepId id, const Totals& totals) {
  if (totals.ops < begin_.ops) { // the counters have been reset
    end_trial();
    begin(phase_ == Phase::kResting ? Phase::kResting : Phase::kWatching, totals);
  }
  first_ = num_steps_ == 0 ? id : first_;
  are_alike_ = are_alike_ && id == first_;
  ++num_steps_;
  if (are_alike_ && num_steps_ <= kStepsOfLoop) {
    times_.push_back(totals.time - last_.time);
  }
  if (totals.time - last_.time >= longest_) {
    longest_ = totals.time - last_.time;
    ops_of_longest_ = totals.ops - last_.ops;
  }
  last_ = totals;
  const auto known = are_at_once_.find(id);
  num_unknown_ += known == are_at_once_.end() ? 1 : 0;
  num_strangers_ = known == are_at_once_.end() ? num_strangers_ + 1 : 0;
  if (phase_ == Phase::kRecording || phase_ == Phase::kAtOnce) {
    note_tried(id);
    if (is_at_end_of_stretch(totals)) {
      end_stretch(totals);
    }
    return phase_ == Phase::kAtOnce;
  }
  if (num_steps_ >= kWatched) {
    end_window(totals);
    if (phase_ == Phase::kAtOnce) {
      return true;
    }
  }
  // What comes next is most likely what came last; a step that is not known goes with those that are.
  is_at_once_ = phase_ != Phase::kRecording && num_strangers_ <= kMostStrangers &&
                (known == are_at_once_.end() ? is_at_once_ : known->second);
  return is_at_once_;
}

void ShortSteps::end_window(const Totals& totals) {
  const bool is_unknown = kShareUnknown * num_unknown_ > num_steps_;
  is_at_once_ = is_at_once_ && !is_unknown;
  if (phase_ == Phase::kWatching && is_unknown) {
    const bool is_settled = totals.changes == begin_.changes && totals.ops != begin_.ops;
    return is_settled && !are_long(totals) && !take_long(totals) ? begin_trial(totals)
                                                                 : begin(Phase::kWatching, totals);
  }
  rested_ += num_steps_;
  if (is_unknown) {
    rest_ = kFirstRest;
    return begin(Phase::kWatching, totals);
  }
  begin(rested_ >= rest_ ? Phase::kRecording : Phase::kResting, totals);
}

// In a loop around one step, what has been looked at was a stretch, though a short one.
void ShortSteps::begin_trial(const Totals& totals) {
  if (!are_alike_) {
    return begin(Phase::kRecording, totals);
  }
  recorded_ = {seconds_per_op(totals), true, false};
  tried_.emplace(first_, Tried{.stretch = stretch_++});
  begin(Phase::kAtOnce, totals);
}

void ShortSteps::begin(Phase phase, const Totals& totals) {
  phase_ = phase;
  begin_ = last_ = totals;
  longest_ = {};
  ops_of_longest_ = 0;
  num_steps_ = num_unknown_ = num_new_ = num_new_in_a_row_ = 0;
  are_alike_ = true;
  times_.clear();
}

void ShortSteps::note_tried(StepId id) {
  const auto found = tried_.find(id);
  if (found != tried_.end()) {
    const bool is_new = found->second.stretch == stretch_;
    found->second.has_come_again |= !is_new;
    num_new_ += is_new ? 1 : 0;
    num_new_in_a_row_ = is_new ? num_new_in_a_row_ + 1 : 0;
    return;
  }
  ++num_new_;
  ++num_new_in_a_row_;
  if (tried_.size() < kMaxKnown) {
    tried_.emplace(id, Tried{.stretch = stretch_});
  }
}

bool ShortSteps::has_another_begun() const {
  return stretch_ != 0 && num_new_in_a_row_ >= kWatched;
}

bool ShortSteps::is_another_program() const {
  return has_another_begun() || (stretch_ != 0 && kShareUnknown * num_new_ > num_steps_);
}

bool ShortSteps::are_tiny(const Totals& totals) const {
  const int64_t ops = totals.ops - begin_.ops;
  return are_alike_ && ops <= kMostTinyOps * num_steps_ && totals.time - begin_.time < kTimeOfTinyOp * ops;
}

bool ShortSteps::are_long(const Totals& totals) const {
  const int64_t most = are_alike_ ? kMostOpsOfLoop : kMostOps;
  return totals.ops - begin_.ops > most * num_steps_ && !are_tiny(totals);
}

bool ShortSteps::take_long(const Totals& totals) const {
  return totals.time - begin_.time > kMostTime * num_steps_ && !are_tiny(totals);
}

double ShortSteps::seconds_per_op(const Totals& totals) {
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  if (are_alike_) {
    const auto median = times_.begin() + std::ssize(times_) / 2;
    std::nth_element(times_.begin(), median, times_.end());
    return seconds(*median) * static_cast<double>(num_steps_) / static_cast<double>(totals.ops - begin_.ops);
  }
  const bool has_others = num_steps_ > 1 && totals.ops - begin_.ops > ops_of_longest_;
  const auto time = totals.time - begin_.time - (has_others ? longest_ : Clock::duration{0});
  const int64_t ops = totals.ops - begin_.ops - (has_others ? ops_of_longest_ : 0);
  return seconds(time) / static_cast<double>(ops);
}

bool ShortSteps::is_at_end_of_stretch(const Totals& totals) const {
  return totals.ops - begin_.ops >= kStretch || has_another_begun() || num_steps_ >= most_steps() ||
         totals.time - begin_.time > kLongestStretch;
}

int64_t ShortSteps::most_steps() const {
  if (tried_.size() > 1) {
    return kStepsOfEach * static_cast<int64_t>(tried_.size());
  }
  const bool is_slower =
      phase_ == Phase::kRecording ? at_once_ && at_once_->seconds < recorded_.seconds : losses_ > wins_;
  return is_slower ? kStepsOfSlowerLoop : kStepsOfLoop;
}

void ShortSteps::end_stretch(const Totals& totals) {
  if (is_another_program()) { // whose times tell nothing of the one before, nor do the latter's of it
    end_trial();
    return begin(Phase::kWatching, totals);
  }
  ++stretch_;
  const Stretch stretch{seconds_per_op(totals), are_alike_, num_steps_ == 1};
  const bool is_slow = phase_ == Phase::kRecording && take_long(totals); // at once, it has lost
  const bool is_comparable = (phase_ == Phase::kRecording && !at_once_) || recorded_.is_of_loop == stretch.is_of_loop;
  if (totals.changes != begin_.changes || are_long(totals) || is_slow || !is_comparable) {
    at_once_.reset();
    const bool goes_on = ++num_spoiled_ < kMostSpoiled;
    if (!goes_on) {
      end_trial();
    }
    return begin(goes_on ? Phase::kRecording : Phase::kWatching, totals);
  }
  if (phase_ == Phase::kAtOnce) {
    at_once_ = stretch;
    return begin(Phase::kRecording, totals);
  }
  if (at_once_) {
    judge(*at_once_, std::minmax(recorded_.seconds, stretch.seconds));
    at_once_.reset();
  }
  recorded_ = stretch;
  begin(Phase::kAtOnce, totals);
  if (wins_ >= kWins || losses_ >= kLosses || num_unclear_ >= kMostUnclear) {
    decide(wins_ >= kWins || (losses_ < kLosses && wins_ > losses_));
  }
}

// Where the machine's pace has changed since one of the two was recorded, only the other one was as fast or slow as
// what lies between them: whoever beats both has won.
void ShortSteps::judge(const Stretch& at_once, std::pair<double, double> recorded) {
  const auto [faster, slower] = recorded;
  if (at_once.seconds < (1 - kGain) * faster) {
    wins_ += at_once.seconds < (1 - kClearGain) * faster ? 2 : 1;
  } else if (at_once.seconds >= (1 - kGain) * slower) {
    losses_ += at_once.seconds > kClearLoss * slower && !at_once.is_one_step ? kLosses : 1;
  } else {
    ++num_unclear_;
  }
}

void ShortSteps::end_trial() {
  wins_ = losses_ = num_unclear_ = num_spoiled_ = stretch_ = 0;
  at_once_.reset();
  tried_.clear();
}

void ShortSteps::decide(bool is_at_once) {
  if (are_at_once_.size() >= kMaxKnown) {
    are_at_once_.clear();
  }
  for (const auto& [id, tried] : tried_) {
    if (tried.has_come_again) {
      are_at_once_[id] = is_at_once;
    }
  }
  end_trial();
  ++num_trials_;
  num_won_ += is_at_once ? 1 : 0;
  rest_ = rested_ >= rest_ ? std::min(rest_, std::numeric_limits<int64_t>::max() / kGrowth) * kGrowth : rest_;
  rested_ = 0;
  phase_ = Phase::kResting;
}

namespace {

thread_local StepSoFar step_so_far;

enum class Choice : uint8_t { kTrials, kNever, kAlways };

Choice choice() {
  const std::string value = config().run_at_once.get();
  return value == "auto" ? Choice::kTrials : value == "never" ? Choice::kNever : Choice::kAlways;
}

// Where the tests say what is recorded together, nothing else does.
bool may_try() {
  const Config& flags = config();
  return flags.chunk_nodes.get() == 0 && !flags.launch_blocking.get() && flags.schedule.get().empty();
}

class Trials {
 public:
  void end_step() {
    if (choice_.load(std::memory_order_relaxed) != Choice::kTrials) {
      return;
    }
    if (step_so_far.is_empty()) {
      return; // one read after the other
    }
    static Counter& tried = counter("ShortStepsTried");
    static Counter& won = counter("ShortStepsAtOnce");
    const ShortSteps::StepId id = std::exchange(step_so_far, {}).id();
    const bool is_to_try = may_try();
    const ShortSteps::Totals now = totals();
    const ForkSafeLock lock(mutex_);
    // Steps of several threads tell nothing of any.
    const auto thread = std::this_thread::get_id();
    if (thread != thread_ || !is_to_try) {
      thread_ = thread;
      steps_ = ShortSteps();
      is_at_once_.store(false, std::memory_order_relaxed);
      return;
    }
    const int64_t num_trials = steps_.num_trials();
    const int64_t num_won = steps_.num_won();
    is_at_once_.store(steps_.end_step(id, now), std::memory_order_relaxed);
    if (steps_.num_trials() != num_trials) {
      tried.add();
      won.add(steps_.num_won() - num_won);
    }
  }

  bool are_at_once() {
    if (const uint64_t version = config().run_at_once.version(); version_.load(std::memory_order_relaxed) != version) {
      version_.store(version, std::memory_order_relaxed);
      choice_.store(choice(), std::memory_order_relaxed);
      is_at_once_.store(choice_ == Choice::kAlways, std::memory_order_relaxed);
    }
    return is_at_once_.load(std::memory_order_relaxed);
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    steps_ = ShortSteps();
    is_at_once_.store(choice_ == Choice::kAlways, std::memory_order_relaxed);
  }

 private:
  static ShortSteps::Totals totals() {
    static Counter& recorded = counter("NodesRecorded");
    static Counter& at_once = counter("RunAtOnce");
    static Counter* const changes[] = {
        &counter("Compile"),
        &counter("StepsOnTrial"),
        &counter("StepsCut"),
        &counter("StepsKeptWhole"),
        &counter("StepsReplanned")};
    const auto add = [](int64_t sum, const Counter* counter) { return sum + counter->value(); };
    return {
        recorded.value() + at_once.value(),
        std::accumulate(std::begin(changes), std::end(changes), int64_t{0}, add),
        ShortSteps::Clock::now()};
  }

  std::atomic<uint64_t> version_{0}; // of the flag, when it was read
  std::atomic<Choice> choice_{Choice::kTrials};
  std::atomic<bool> is_at_once_{false};
  ForkSafeMutex mutex_; // guards all members below
  std::thread::id thread_;
  ShortSteps steps_;
};

Trials& trials() {
  static auto* trials = new Trials();
  return *trials;
}

} // namespace

void note_call(const OpInfo& op, int64_t num_elements) {
  step_so_far.note(op, num_elements);
}

void note_end_of_step() {
  trials().end_step();
}

bool runs_steps_at_once() {
  return trials().are_at_once();
}

void clear_short_steps() {
  trials().clear();
}

} // namespace lazyplug
