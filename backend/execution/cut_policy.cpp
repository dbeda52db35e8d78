#include "backend/execution/cut_policy.h"

#include <algorithm>
#include <bit>

#include "backend/caches/beginnings.h"

namespace lazyplug {

void CutPolicy::note(uint64_t op_hash, bool may_overlap) {
  if (uses_plans_) {
    plans_.note(op_hash, may_overlap);
  }
  // Cyclic polynomial: rotate, remove the op that leaves, add the new one.
  place_ = std::rotl(place_, 1) ^ std::rotl(window_[next_], kWindow) ^ op_hash;
  window_[next_] = op_hash;
  next_ = (next_ + 1) % kWindow;
  ++chunk_ops_;
  ++step_ops_;
}

bool CutPolicy::should_cut(Size trace, const Limits& limits) {
  const bool may_cut = trace.nodes >= limits.min_nodes || trace.bytes >= limits.max_bytes / 4;
  const bool must_cut = trace.nodes >= limits.max_nodes || trace.bytes >= limits.max_bytes;
  is_planned_ = uses_plans_ && plans_.cuts_here();
  const bool is_expected = is_planned_ || is_chunk(limits) || (may_cut && places_.count(place_) != 0);
  if (must_cut && !is_expected) {
    remember(place_);
  }
  is_cutting_ = is_expected || must_cut;
  if (is_cutting_ && !is_planned_) {
    plans_.disturb();
  }
  return is_cutting_;
}

bool CutPolicy::is_chunk(const Limits& limits) const {
  constexpr size_t kGrowth = 4; // a chunk is a third of what came before it
  return limits.chunk_ops != 0 && step_ops_ + limits.chunk_ops <= expected_ops_ &&
         chunk_ops_ >= std::max(limits.chunk_ops, step_ops_ / kGrowth);
}

void CutPolicy::cut(const Limits& limits, size_t num_awaited) {
  chunk_ops_ = 0;
  timed_step_ = 0;
  if (!is_cutting_ && step_ops_ != 0) {
    end_step(limits, num_awaited);
  }
  is_cutting_ = false;
  is_planned_ = false;
}

void CutPolicy::end_step(const Limits& limits, size_t num_awaited) {
  ++step_number_;
  timed_step_ = uses_plans_ ? plans_.end_step(num_awaited, is_beginning()) : 0;
  if (step_ops_ > limits.max_nodes) {
    last_steps_ = {}; // the program hardly ever waits
  } else {
    last_steps_[next_step_] = step_ops_;
    next_step_ = (next_step_ + 1) % last_steps_.size();
  }
  step_ops_ = 0;
  expected_ops_ = *std::max_element(last_steps_.begin(), last_steps_.end());
}

void CutPolicy::remember(uint64_t place) {
  if (oldest_first_.size() == kMaxPlaces) {
    places_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  places_.insert(place);
  oldest_first_.push_back(place);
}

} // namespace lazyplug
