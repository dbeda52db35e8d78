#include "backend/caches/short_steps.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "common/metrics.h"

namespace lazyplug {

bool ShortSteps::end_step(const Totals& totals) {
  if (totals.ops < begin_.ops) { // the counters have been reset
    begin(phase_ == Phase::kResting ? Phase::kResting : Phase::kWatching, totals);
  }
  ++num_steps_;
  switch (phase_) {
    case Phase::kWatching:
      if (num_steps_ >= kWatched) {
        const bool is_settled = totals.compiles == begin_.compiles && totals.ops != begin_.ops;
        begin(is_settled && !are_long(totals) ? Phase::kRecording : Phase::kWatching, totals);
      }
      break;
    case Phase::kRecording:
    case Phase::kAtOnce:
      if (totals.ops - begin_.ops >= kStretch) {
        end_stretch(totals);
      }
      break;
    case Phase::kResting:
      if (num_steps_ >= kWatched) {
        rested_ += num_steps_;
        const bool has_changed = is_at_once_ && are_long(totals);
        begin(rested_ >= rest_ || has_changed ? Phase::kWatching : Phase::kResting, totals);
      }
      break;
  }
  return phase_ == Phase::kAtOnce || (phase_ == Phase::kResting && is_at_once_);
}

void ShortSteps::begin(Phase phase, const Totals& totals) {
  phase_ = phase;
  begin_ = totals;
  num_steps_ = 0;
}

bool ShortSteps::are_long(const Totals& totals) const {
  return totals.ops - begin_.ops > kMostOps * num_steps_;
}

double ShortSteps::seconds_per_op(const Totals& totals) const {
  return std::chrono::duration<double>(totals.time - begin_.time).count() /
         static_cast<double>(totals.ops - begin_.ops);
}

void ShortSteps::end_stretch(const Totals& totals) {
  const double seconds = seconds_per_op(totals);
  if (totals.compiles != begin_.compiles || are_long(totals)) {
    // The program has come to something new; if it goes on so, it is not the time for a trial.
    num_pairs_ = ++num_spoiled_ > kPairs ? 0 : num_pairs_;
    begin(num_spoiled_ > kPairs ? Phase::kWatching : Phase::kRecording, totals);
    num_spoiled_ = num_spoiled_ > kPairs ? 0 : num_spoiled_;
    return;
  }
  if (phase_ == Phase::kRecording) {
    recorded_ = seconds;
    return begin(Phase::kAtOnce, totals);
  }
  ratios_[num_pairs_++] = seconds / recorded_;
  begin(Phase::kRecording, totals);
  if (num_pairs_ == kPairs) {
    decide();
  }
}

void ShortSteps::decide() {
  const auto median = ratios_.begin() + kPairs / 2;
  std::nth_element(ratios_.begin(), median, ratios_.end());
  is_at_once_ = *median < 1 - kGain;
  ++num_trials_;
  num_won_ += is_at_once_ ? 1 : 0;
  num_pairs_ = num_spoiled_ = 0;
  rested_ = 0;
  rest_ = num_trials_ == 1 ? kFirstRest : std::min(rest_, std::numeric_limits<int64_t>::max() / kGrowth) * kGrowth;
  phase_ = Phase::kResting;
}

namespace {

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
    const ForkSafeLock lock(mutex_);
    // Steps of several threads tell nothing of any.
    const auto thread = std::this_thread::get_id();
    if (thread != thread_ || !may_try()) {
      thread_ = thread;
      steps_ = ShortSteps();
      is_at_once_.store(false, std::memory_order_relaxed);
      return;
    }
    const int64_t num_trials = steps_.num_trials();
    const int64_t num_won = steps_.num_won();
    is_at_once_.store(steps_.end_step(totals()), std::memory_order_relaxed);
    if (steps_.num_trials() != num_trials) {
      static Counter& tried = counter("ShortStepsTried");
      static Counter& won = counter("ShortStepsAtOnce");
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
    static Counter& compiles = counter("Compile");
    return {recorded.value() + at_once.value(), compiles.value(), ShortSteps::Clock::now()};
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
