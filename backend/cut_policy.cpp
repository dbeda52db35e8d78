#include "backend/cut_policy.h"

#include <bit>

namespace lazyplug {

void CutPolicy::note(uint64_t op_hash) {
  // Cyclic polynomial: rotate, remove the op that leaves, add the new one.
  place_ = std::rotl(place_, 1) ^ std::rotl(window_[next_], kWindow) ^ op_hash;
  window_[next_] = op_hash;
  next_ = (next_ + 1) % kWindow;
}

bool CutPolicy::should_cut(size_t nodes, Limits limits, bool may_cut, bool must_cut) {
  const bool is_chunk = ends_traces_ && nodes >= limits.chunk && uncut_nodes_ + nodes <= limits.regular;
  const bool is_known = may_cut && places_.count(place_) != 0;
  if (must_cut && !is_chunk && !is_known) {
    remember(place_);
  }
  is_cutting_ = is_chunk || is_known || must_cut;
  return is_cutting_;
}

void CutPolicy::cut(size_t nodes, Limits limits) {
  uncut_nodes_ += nodes;
  ends_traces_ = uncut_nodes_ <= limits.regular && (ends_traces_ || !is_cutting_);
  if (!is_cutting_) {
    uncut_nodes_ = 0;
  }
  is_cutting_ = false;
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
