#include "backend/execution/step_plans.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>

#include "common/metrics.h"

namespace lazyplug {
namespace {

// Cuts gain if they save this part of a step, or so many seconds of a long one; never if they save less than the least.
constexpr double kLeastGain = 0.1;
constexpr double kLargeSaving = 2e-4;
constexpr double kLeastSaving = 2e-5;
constexpr size_t kMaxCuts = 32;
constexpr size_t kNever = SIZE_MAX / 2; // is a step planned
// Steps of a trial that are cut, or whole, one after the other. The first of them does not count: what the step before
// has left to the worker falls into it.
constexpr size_t kBlock = 4;
static_assert(StepPlans::kClearTrials >= 2 * (kBlock - 1), "of two stretches");

double least_saving(double whole) {
  return std::max(kLeastSaving, std::min(whole * kLeastGain, kLargeSaving));
}

// What a trial has to show: more than what cuts are planned for. Of what is chosen by a noisy measurement the true gain
// is less than the measured one, and it is paid for with another processor's time.
double least_gain_of_trial(double whole) {
  constexpr double kCaution = 1.5;
  return std::max(kCaution * kLeastSaving, std::min(kCaution * kLeastGain * whole, kLargeSaving));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Whether each of these is less than any of those.
bool are_below(const std::vector<double>& these, const std::vector<double>& those) {
  return *std::max_element(these.begin(), these.end()) < *std::min_element(those.begin(), those.end());
}

// Pieces whose kernels take at least so long, each by a factor more than the one
// before.
std::vector<size_t> cuts_of(const StepTimes& times, double grain, double growth) {
  const auto& kernels = times.kernels;
  const size_t end = std::min(kernels.size(), times.num_overlapping);
  const double total = std::accumulate(kernels.begin(), kernels.end(), 0.0);
  std::vector<size_t> cuts;
  double piece = 0;
  double done = 0;
  for (size_t i = 0; i < end && cuts.size() < kMaxCuts; ++i) {
    piece += kernels[i];
    done += kernels[i];
    if (piece >= grain && total - done >= grain / 2) {
      cuts.push_back(i + 1);
      piece = 0;
      grain *= growth;
    }
  }
  return cuts;
}

// Whether these are less than those, by the rank-sum test of Mann and Whitney: so many pairs would say so by chance in
// an eighth of all cases. The medians of a few steps that take longer and less long by turns, as where a program's data
// have other sizes each time, differ by more than what cuts are to gain.
bool are_mostly_below(const std::vector<double>& these, const std::vector<double>& those) {
  constexpr double kDeviations = 1.15;
  double num_below = 0;
  for (const double value : these) {
    num_below += static_cast<double>(std::count_if(those.begin(), those.end(), [&](double v) { return value < v; }));
  }
  const auto num_pairs = static_cast<double>(these.size() * those.size());
  const auto num_values = static_cast<double>(these.size() + those.size());
  return num_below >= num_pairs / 2 + kDeviations * std::sqrt(num_pairs * (num_values + 1) / 12);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of one step, in seconds since its beginning.
struct Outcome {
  double result = 0; // when the program has what it waits for
  double busy = 0;   // until when the worker computes the rest
};

Outcome
simulate(const StepTimes& times, const std::vector<size_t>& cuts, const HandOverCosts& costs, double worker_busy) {
  double recorded = 0;
  double computed = worker_busy; // when the worker is done with what it has been given
  double awaited = 0;            // when it is done with what the program waits for, if it does it all
  size_t next = 0;
  const auto record_until = [&](size_t end) {
    double kernels = costs.job;
    for (; next < end; ++next) {
      recorded += times.recording[next];
      kernels += times.kernels[next];
    }
    return kernels;
  };
  const auto hand_over = [&](double kernels) {
    const bool is_asleep = recorded - computed > costs.patience;
    recorded += costs.recording + (is_asleep ? costs.waking : 0);
    computed = std::max(computed, recorded + (is_asleep ? costs.wake : 0)) + kernels;
  };
  for (size_t cut : cuts) {
    hand_over(record_until(cut));
    if (awaited == 0 && cut >= times.num_awaited) {
      awaited = computed;
    }
  }
  const double kernels = record_until(times.kernels.size());
  if (awaited == 0) {
    const double result = std::max(recorded, computed) + kernels;
    return {result, result};
  }
  hand_over(kernels);
  return {std::max(recorded, awaited), computed};
}

} // namespace

double time_of_step(const StepTimes& times, const std::vector<size_t>& cuts, const HandOverCosts& costs) {
  const Outcome before = simulate(times, cuts, costs, -costs.patience);
  return simulate(times, cuts, costs, before.busy - before.result).result;
}

std::vector<size_t> best_cuts(const StepTimes& times, const HandOverCosts& costs) {
  const double whole = time_of_step(times, {}, costs);
  double best = whole - least_saving(whole);
  std::vector<size_t> chosen;
  const auto consider = [&](std::vector<size_t> cuts) {
    const double time = time_of_step(times, cuts, costs);
    if (time < best) {
      best = time;
      chosen = std::move(cuts);
    }
  };
  // After what the program waits for, unless everything is, or nothing else may be computed elsewhere.
  const bool has_rest = times.num_awaited < times.kernels.size() && times.num_awaited <= times.num_overlapping;
  const auto with_rest_apart = [&](std::vector<size_t> cuts) {
    const auto place = std::lower_bound(cuts.begin(), cuts.end(), times.num_awaited);
    if (place == cuts.end() || *place != times.num_awaited) {
      cuts.insert(place, times.num_awaited);
    }
    return cuts;
  };
  if (has_rest) {
    consider({times.num_awaited});
  }
  for (double grain = 4e-5; grain < whole; grain *= 2) {
    for (double growth : {1.0, 1.5}) {
      const std::vector<size_t> cuts = cuts_of(times, grain, growth);
      consider(cuts);
      if (has_rest) {
        consider(with_rest_apart(cuts));
      }
    }
  }
  return chosen;
}

StepPlans::StepPlans() : StepPlans(steady_seconds) {}

void StepPlans::begin_step() {
  const double seconds = boundary_ - started_;
  if (waiting_.step != 0) {
    waiting_.seconds += seconds;
    note_trial(std::exchange(waiting_, {}));
  }
  note_follower();
  if (const auto ended = steps_.find(ended_); ended != steps_.end()) {
    note_duration(ended_, ended->second, seconds);
  }
  before_ended_ = std::exchange(ended_, 0);
  started_ = boundary_;
  last_op_ = boundary_;
  is_disturbed_ = false;
  was_cut_ = false;
  was_uncut_ = uncut_steps_ != 0;
  num_overlapping_ = 0;
  is_timed_ = num_settled_ < kQuiet;
  recording_.clear();
  prefixes_.clear();
}

void StepPlans::note(uint64_t op_hash, bool may_overlap) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15; // 2^64 by the golden ratio
  if (num_ops_ == 0) {
    begin_step();
  }
  num_overlapping_ += may_overlap && num_overlapping_ == num_ops_;
  ++num_ops_;
  prefix_ = (std::rotl(prefix_, 7) ^ op_hash) * kOdd;
  was_cut_ = was_cut_ || cuts_here();
  if (is_timed_) {
    const double now = now_();
    recording_.push_back(static_cast<float>(now - last_op_));
    prefixes_.push_back(prefix_);
    last_op_ = now;
    is_timed_ = num_ops_ < kMaxTimedOps && !was_cut_;
  }
}

StepPlans::StepId StepPlans::end_step(size_t num_awaited, bool is_beginning) {
  const StepId id = prefix_ == 0 ? 1 : prefix_;
  const bool is_known = num_ops_ != 0 && !is_disturbed_;
  const size_t num_ops = std::exchange(num_ops_, 0);
  all_ops_ += num_ops;
  ++num_steps_;
  prefix_ = 0;
  boundary_ = now_();
  ended_ = is_known ? id : 0;
  uncut_steps_ -= uncut_steps_ != 0 ? 1 : 0;
  if (std::exchange(is_beginning_, is_beginning) && !is_beginning) {
    end_beginning();
  }
  if (!is_known) {
    return 0;
  }
  if (steps_.size() >= kMaxSteps && steps_.count(id) == 0) {
    forget_oldest();
  }
  Step& step = steps_[id];
  ++step.seen;
  step.first_at = step.num_seen++ == 0 ? num_steps_ : step.first_at;
  const bool is_soon = num_ops >= kMediumStep || step.is_apart(num_steps_, kNear);
  step.planned_when_seen = !is_beginning ? kNever : num_ops >= kLongStep ? 1 : is_soon ? 2 : kWarmUps + kTimed;
  step.is_rare =
      (step.ended_at != 0 && kLeastShare * num_ops < all_ops_ - step.ended_at) || step.is_apart(num_steps_, kMostApart);
  step.ended_at = all_ops_;
  num_settled_ = step.state == State::kSettled || step.is_waiting() ? num_settled_ + 1 : 0;
  if (step.state == State::kSettled && step.num_retrials < std::size(kRetrials) &&
      step.seen == kRetrials[step.num_retrials]) {
    try_again(step, is_beginning);
  }
  const bool is_timed =
      step.state == State::kTimed && !step.is_waiting() && step.seen >= std::min(step.planned_when_seen, kWarmUps);
  if (is_timed && was_cut_ && step.num_freed < kMaxFreed) {
    ++step.num_freed;
    step.seen = step.planned_when_seen - std::min(step.planned_when_seen, kWarmUps + kTimed);
    uncut_steps_ = kWarmUps + kTimed;
  }
  if (!is_timed || was_cut_ || recording_.size() != num_ops) {
    return 0;
  }
  step.times.recording = recording_;
  step.times.num_overlapping = num_overlapping_;
  step.times.num_awaited = num_awaited;
  step.cuts = prefixes_; // of every op, until it is planned
  return id;
}

void StepPlans::note_also_awaited(size_t num_awaited) {
  const auto ended = num_ops_ == 0 ? steps_.find(ended_) : steps_.end();
  if (ended != steps_.end() && ended->second.state == State::kTimed) {
    StepTimes& times = ended->second.times;
    times.num_awaited = std::max(times.num_awaited, num_awaited);
  }
}

void StepPlans::forget_oldest() {
  std::vector<uint64_t> ends;
  for (const auto& [id, step] : steps_) {
    ends.push_back(step.ended_at);
  }
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  for (auto entry = steps_.begin(); entry != steps_.end();) {
    if (entry->second.ended_at < *middle) {
      cut_from_now_on(entry->second, false);
      entry = steps_.erase(entry);
    } else {
      ++entry;
    }
  }
}

void StepPlans::note_kernels(StepId id, std::vector<float> kernels, double job_cost) {
  const auto found = steps_.find(id);
  if (found != steps_.end() && found->second.state == State::kTimed) {
    found->second.times.kernels = std::move(kernels);
    // A graph may have been compiled meanwhile.
    costs_.job += (std::min(job_cost, 2 * costs_.job) - costs_.job) / 8;
  }
}

void StepPlans::note_follower() {
  if (const auto before = steps_.find(before_ended_); before != steps_.end() && ended_ != 0) {
    before->second.follower = ended_;
  }
}

// The pieces of steps whose trials have hardly begun would be compiled from now on.
void StepPlans::end_beginning() {
  for (auto& [id, step] : steps_) {
    if (step.state == State::kTrial && step.num_retrials == 0 && step.seen < 2) {
      settle(step, false);
    }
  }
}

void StepPlans::note_duration(StepId id, Step& step, double seconds) {
  const bool is_to_be_timed = step.times.recording.empty() && step.seen < step.planned_when_seen + kWarmUps + kTimed;
  if (step.state == State::kTimed && step.seen >= step.planned_when_seen && !is_to_be_timed && !was_cut_) {
    plan(step);
  }
  if (step.state == State::kTrial && step.seen != 0) {
    const Trial trial{id, step.seen, seconds, was_uncut_};
    const bool is_followed = step.follower != 0 && step.follower != id;
    is_followed ? void(waiting_ = trial) : note_trial(trial);
  }
}

void StepPlans::note_trial(const Trial& trial) {
  const auto found = steps_.find(trial.step);
  if (found == steps_.end() || found->second.state != State::kTrial) {
    return;
  }
  static Counter& on_trial = counter("StepsOnTrial");
  on_trial.add();
  Step& step = found->second;
  const size_t place = (trial.seen - 1) % kBlock;
  const bool is_warm = trial.seen > kBlock; // graphs have been compiled
  if (is_warm && place != 0 && !trial.was_uncut) {
    (step.cuts_now ? step.cut : step.whole).push_back(trial.seconds);
  }
  if (place == kBlock - 1) {
    cut_from_now_on(step, !step.cuts_now);
  }
  const size_t num_trials = std::min(step.cut.size(), step.whole.size());
  const bool is_clear =
      num_trials >= kClearTrials && (are_below(step.cut, step.whole) || are_below(step.whole, step.cut));
  if (!is_clear && num_trials < step.num_trials) {
    return;
  }
  const double whole = median(step.whole);
  const double gain = whole - median(step.cut);
  const bool gains = gain > (step.is_cut ? 0 : least_gain_of_trial(whole)); // the worker is not for nothing
  const bool is_chance = !are_mostly_below(step.cut, step.whole);
  if (gains && is_chance && step.num_trials == kTrials) {
    step.num_trials = 2 * kTrials;
  } else {
    settle(step, gains && !is_chance);
  }
}

void StepPlans::plan(Step& step) {
  const bool is_timed = step.times.kernels.size() == step.times.recording.size();
  const auto counts = is_timed && !step.is_rare ? best_cuts(step.times, costs_) : std::vector<size_t>();
  std::vector<StepId> cuts;
  for (size_t count : counts) {
    cuts.push_back(step.cuts[count - 1]);
  }
  step.cuts = std::move(cuts);
  step.times = {};
  if (step.cuts.empty()) {
    settle(step, false);
    return;
  }
  cut_from_now_on(step, true);
  step.state = State::kTrial;
  step.seen = 0;
}

void StepPlans::settle(Step& step, bool cut) {
  static Counter& steps_cut = counter("StepsCut");
  static Counter& steps_whole = counter("StepsKeptWhole");
  static Counter& replanned = counter("StepsReplanned");
  const bool is_first = step.num_retrials == 0;
  if (is_first || cut != step.is_cut) {
    (is_first ? cut ? steps_cut : steps_whole : replanned).add();
  }
  cut_from_now_on(step, cut);
  Step settled;
  settled.state = State::kSettled;
  settled.is_cut = cut;
  settled.cuts_now = cut;
  settled.num_retrials = step.num_retrials;
  settled.planned_when_seen = step.planned_when_seen;
  settled.ended_at = step.ended_at;
  settled.first_at = step.first_at;
  settled.num_seen = step.num_seen;
  settled.follower = step.follower;
  settled.cuts = std::move(step.cuts);
  step = std::move(settled);
}

// At first there is time to plan anew where no cuts had promised a gain, or to cut what has been settled whole; later
// that would compile again, since the pieces of a step are not quite alike each time.
void StepPlans::try_again(Step& step, bool is_beginning) {
  const bool is_first = step.num_retrials++ == 0;
  if (!step.is_cut && !is_beginning) {
    return;
  }
  if (step.cuts.empty() && (!is_first || step.is_long() || step.is_apart(num_steps_, kNear))) {
    return;
  }
  step.state = step.cuts.empty() ? State::kTimed : State::kTrial;
  step.seen = 0;
}

void StepPlans::cut_from_now_on(Step& step, bool cut) {
  if (step.cuts_now == cut) {
    return;
  }
  step.cuts_now = cut;
  for (const StepId prefix : step.cuts) {
    const auto place = cuts_.emplace(prefix, 0).first;
    place->second += cut ? 1 : -1;
    if (place->second == 0) {
      cuts_.erase(place);
    }
  }
}

} // namespace lazyplug
