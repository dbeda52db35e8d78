#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_set>

namespace lazyplug {

// Decides where a trace that nobody reads is cut, so that it does not grow
// without bound. Cuts must repeat: a loop whose steps were cut at ever other
// places would never see the same graph twice.
//
// A place is known by the ops that lead to it (a rolling hash over the last
// `kWindow` of them). The first cut of a loop happens wherever the trace reaches
// its maximum. From then on a trace is cut, once it has the minimum size, at a
// place where it was cut before, that is, a whole number of steps later.
class CutPolicy {
 public:
  static constexpr size_t kWindow = 32;

  // Records an op, known by its hash.
  void note(uint64_t op_hash);

  // Whether the trace ends here. It may if it has the minimum size, and must if
  // it has the maximum.
  bool should_cut(bool may_cut, bool must_cut);

 private:
  static constexpr size_t kMaxPlaces = 4096;

  void remember(uint64_t place);

  std::array<uint64_t, kWindow> window_{};
  size_t next_ = 0;
  uint64_t place_ = 0;
  std::unordered_set<uint64_t> places_;
  std::deque<uint64_t> oldest_first_;
};

} // namespace lazyplug
