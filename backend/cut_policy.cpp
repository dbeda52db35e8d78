#include "backend/cut_policy.h"

#include <bit>

namespace lazyplug {

void CutPolicy::note(uint64_t op_hash) {
  // Cyclic polynomial: rotate, remove the op that leaves, add the new one.
  place_ = std::rotl(place_, 1) ^ std::rotl(window_[next_], kWindow) ^ op_hash;
  window_[next_] = op_hash;
  next_ = (next_ + 1) % kWindow;
}

bool CutPolicy::should_cut(bool may_cut, bool must_cut) {
  if (may_cut && places_.count(place_) != 0) {
    return true;
  }
  if (must_cut) {
    remember(place_);
  }
  return must_cut;
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
