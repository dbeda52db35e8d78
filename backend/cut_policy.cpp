#include "backend/cut_policy.h"

#include <algorithm>
#include <bit>

namespace lazyplug {
namespace {

// Within a third: not worth other cuts, and so other graphs.
bool is_similar(uint64_t a, uint64_t b) {
  return 2 * std::max(a, b) <= 3 * std::min(a, b);
}

} // namespace

void CutPolicy::note(uint64_t op_hash, uint64_t work_ns) {
  // Cyclic polynomial: rotate, remove the op that leaves, add the new one.
  place_ = std::rotl(place_, 1) ^ std::rotl(window_[next_], kWindow) ^ op_hash;
  window_[next_] = op_hash;
  next_ = (next_ + 1) % kWindow;
  for (Length* length : {&chunk_, &step_}) {
    ++length->ops;
    length->work_ns += work_ns;
  }
}

bool CutPolicy::should_cut(Size trace, const Limits& limits) {
  const bool may_cut = trace.nodes >= limits.min_nodes || trace.bytes >= limits.max_bytes / 4;
  const bool must_cut = trace.nodes >= limits.max_nodes || trace.bytes >= limits.max_bytes;
  const bool is_expected = is_chunk(limits) || (may_cut && places_.count(place_) != 0);
  if (must_cut && !is_expected) {
    remember(place_);
  }
  is_cutting_ = is_expected || must_cut;
  return is_cutting_;
}

bool CutPolicy::is_chunk(const Limits& limits) const {
  return chunk_.ops >= limits.chunk_ops && chunk_.work_ns >= expected_.work_ns / kChunks &&
         step_.ops + limits.chunk_ops <= expected_.ops;
}

void CutPolicy::cut(const Limits& limits) {
  chunk_ = {};
  if (!is_cutting_) {
    end_step(limits);
  }
  is_cutting_ = false;
}

void CutPolicy::end_step(const Limits& limits) {
  if (step_.ops == 0) {
    return;
  }
  ++step_number_;
  if (step_.ops > limits.max_nodes) {
    last_steps_ = {}; // the program hardly ever waits
  } else {
    last_steps_[next_step_] = step_;
    next_step_ = (next_step_ + 1) % last_steps_.size();
  }
  step_ = {};
  Length longest;
  for (const Length& step : last_steps_) {
    longest.ops = std::max(longest.ops, step.ops);
    longest.work_ns = std::max(longest.work_ns, step.work_ns);
  }
  if (!is_similar(longest.ops, expected_.ops) || !is_similar(longest.work_ns, expected_.work_ns)) {
    expected_ = longest;
  }
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
