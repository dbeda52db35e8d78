// Sets of free stretches of memory, in which neighbours melt together.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace lazyplug {

// Granules [first, first + count).
struct Run {
  size_t first;
  size_t count;
};

// Not thread-safe. Each operation is logarithmic in the number of runs.
class RunSet {
 public:
  // The run must not overlap any in the set.
  void insert(Run run);

  // Takes `count` granules from the smallest run that has them, the lowest of these.
  std::optional<Run> take(size_t count);

  size_t total() const {
    return total_;
  }
  // By address.
  const std::map<size_t, size_t>& runs() const {
    return counts_;
  }
  void clear();

 private:
  void erase(std::map<size_t, size_t>::iterator run);

  std::map<size_t, size_t> counts_;              // by first granule
  std::set<std::pair<size_t, size_t>> by_count_; // (count, first)
  size_t total_ = 0;
};

} // namespace lazyplug
