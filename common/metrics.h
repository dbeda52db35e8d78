// Counters and timers by name, in one registry that is never destroyed.
//
// A hot site looks its metric up once:
//   static Counter& hits = counter("ComputationCacheHit");
//   hits.add();
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lazyplug {

// Thread-safe.
class Counter {
 public:
  void add(int64_t n = 1) {
    value_.fetch_add(n, std::memory_order_relaxed);
  }
  int64_t value() const {
    return value_.load(std::memory_order_relaxed);
  }
  void reset() {
    value_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> value_{0};
};

// What a timer has seen; min_ns and max_ns are 0 as long as count is.
struct TimerStats {
  int64_t count = 0;
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
};

// Thread-safe; while other threads record, the members of stats() may be one sample apart.
class Timer {
 public:
  void record(int64_t ns);
  TimerStats stats() const;
  void reset();

 private:
  static constexpr int64_t kNoMin = std::numeric_limits<int64_t>::max();

  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> total_ns_{0};
  std::atomic<int64_t> min_ns_{kNoMin};
  std::atomic<int64_t> max_ns_{0};
};

// Records its own lifetime.
class TimerScope {
 public:
  explicit TimerScope(Timer& timer) : timer_(timer), start_(std::chrono::steady_clock::now()) {}
  TimerScope(const TimerScope&) = delete;
  TimerScope& operator=(const TimerScope&) = delete;
  ~TimerScope() {
    timer_.record((std::chrono::steady_clock::now() - start_) / std::chrono::nanoseconds(1));
  }

 private:
  Timer& timer_;
  const std::chrono::steady_clock::time_point start_;
};

// The metric of that name, made at the first call. The reference stays valid forever.
Counter& counter(std::string_view name);
Timer& timer(std::string_view name);

// Names in alphabetical order, only of metrics that have counted something since the last reset.
std::vector<std::string> counter_names();
std::vector<std::string> timer_names();

// Nothing if no metric of that name has counted something since the last reset.
std::optional<int64_t> counter_value(std::string_view name);
std::optional<TimerStats> timer_stats(std::string_view name);

// For people: several lines per metric, or one.
std::string metrics_report();
std::string short_report();

// Sets every metric to zero.
void reset_metrics();

} // namespace lazyplug
