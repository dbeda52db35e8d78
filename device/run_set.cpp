#include "device/run_set.h"

namespace lazyplug {

void RunSet::erase(std::map<size_t, size_t>::iterator run) {
  total_ -= run->second;
  by_count_.erase({run->second, run->first});
  counts_.erase(run);
}

void RunSet::insert(Run run) {
  const auto next = counts_.lower_bound(run.first);
  if (next != counts_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == run.first) {
      run = {previous->first, previous->second + run.count};
      erase(previous);
    }
  }
  if (next != counts_.end() && run.first + run.count == next->first) {
    run.count += next->second;
    erase(next);
  }
  counts_.emplace(run.first, run.count);
  by_count_.emplace(run.count, run.first);
  total_ += run.count;
}

std::optional<Run> RunSet::take(size_t count) {
  const auto found = by_count_.lower_bound({count, 0});
  if (found == by_count_.end()) {
    return std::nullopt;
  }
  const Run run{found->second, found->first};
  erase(counts_.find(run.first));
  if (run.count > count) {
    insert({run.first + count, run.count - count});
  }
  return Run{run.first, count};
}

void RunSet::clear() {
  counts_.clear();
  by_count_.clear();
  total_ = 0;
}

} // namespace lazyplug
