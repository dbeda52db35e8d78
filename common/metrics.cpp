#include "common/metrics.h"

#include <functional>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>

#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

bool is_used(const Counter& counter) {
  return counter.value() != 0;
}

bool is_used(const Timer& timer) {
  return timer.stats().count != 0;
}

// The metrics of one kind. Locking: the mutex guards the map; metrics themselves are atomic.
template <typename Metric>
class Registry {
 public:
  Metric& get(std::string_view name) {
    ForkSafeLock lock(mutex_);
    const auto found = metrics_.find(name);
    if (found != metrics_.end()) {
      return *found->second;
    }
    return *metrics_.emplace(name, std::make_unique<Metric>()).first->second;
  }

  const Metric* find_used(std::string_view name) {
    ForkSafeLock lock(mutex_);
    const auto found = metrics_.find(name);
    return found == metrics_.end() || !is_used(*found->second) ? nullptr : found->second.get();
  }

  void for_each(const std::function<void(const std::string&, Metric&)>& visit) {
    ForkSafeLock lock(mutex_);
    for (const auto& [name, metric] : metrics_) {
      visit(name, *metric);
    }
  }

  void for_each_used(const std::function<void(const std::string&, Metric&)>& visit) {
    for_each([&](const std::string& name, Metric& metric) {
      if (is_used(metric)) {
        visit(name, metric);
      }
    });
  }

  std::vector<std::string> used_names() {
    std::vector<std::string> names;
    for_each_used([&](const std::string& name, Metric&) { names.push_back(name); });
    return names;
  }

 private:
  ForkSafeMutex mutex_;
  std::map<std::string, std::unique_ptr<Metric>, std::less<>> metrics_;
};

// Leaked, because threads may still count during exit.
Registry<Counter>& counters() {
  static auto& registry = *new Registry<Counter>();
  return registry;
}

Registry<Timer>& timers() {
  static auto& registry = *new Registry<Timer>();
  return registry;
}

// Made while the library is loaded: in a child that is forked while another thread makes one, it would stay half made,
// and who asks for it would wait for ever.
[[maybe_unused]] const bool kMadeAtLoad = (counters(), timers(), true);

std::string format_ns(int64_t ns) {
  constexpr int64_t kMicrosecond = 1000;
  constexpr int64_t kMillisecond = 1000 * kMicrosecond;
  constexpr int64_t kSecond = 1000 * kMillisecond;
  std::ostringstream text;
  text << std::fixed << std::setprecision(3);
  if (ns < kMillisecond) {
    text << static_cast<double>(ns) / kMicrosecond << "us";
  } else if (ns < kSecond) {
    text << static_cast<double>(ns) / kMillisecond << "ms";
  } else {
    text << static_cast<double>(ns) / kSecond << "s";
  }
  return text.str();
}

// The larger or smaller value wins, whichever thread brings it.
template <typename Better>
void keep_best(std::atomic<int64_t>& best, int64_t value, Better better) {
  int64_t seen = best.load(std::memory_order_relaxed);
  while (better(value, seen) && !best.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void report_timer(std::ostream& text, const std::string& name, const TimerStats& stats) {
  text << "Metric: " << name << "\n  TotalSamples: " << stats.count << "\n  Accumulator: " << format_ns(stats.total_ns)
       << "\n  Mean: " << format_ns(stats.total_ns / stats.count) << "\n  Min: " << format_ns(stats.min_ns)
       << "\n  Max: " << format_ns(stats.max_ns) << "\n";
}

} // namespace

void Timer::record(int64_t ns) {
  keep_best(min_ns_, ns, std::less<>());
  keep_best(max_ns_, ns, std::greater<>());
  total_ns_.fetch_add(ns, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
}

TimerStats Timer::stats() const {
  const int64_t min_ns = min_ns_.load(std::memory_order_relaxed);
  return {
      count_.load(std::memory_order_relaxed),
      total_ns_.load(std::memory_order_relaxed),
      min_ns == kNoMin ? 0 : min_ns,
      max_ns_.load(std::memory_order_relaxed)};
}

void Timer::reset() {
  count_.store(0, std::memory_order_relaxed);
  total_ns_.store(0, std::memory_order_relaxed);
  min_ns_.store(kNoMin, std::memory_order_relaxed);
  max_ns_.store(0, std::memory_order_relaxed);
}

Counter& counter(std::string_view name) {
  return counters().get(name);
}

Timer& timer(std::string_view name) {
  return timers().get(name);
}

std::vector<std::string> counter_names() {
  return counters().used_names();
}

std::vector<std::string> timer_names() {
  return timers().used_names();
}

std::optional<int64_t> counter_value(std::string_view name) {
  const Counter* found = counters().find_used(name);
  return found == nullptr ? std::nullopt : std::make_optional(found->value());
}

std::optional<TimerStats> timer_stats(std::string_view name) {
  const Timer* found = timers().find_used(name);
  return found == nullptr ? std::nullopt : std::make_optional(found->stats());
}

std::string metrics_report() {
  std::ostringstream text;
  timers().for_each_used([&](const std::string& name, const Timer& timer) { report_timer(text, name, timer.stats()); });
  counters().for_each_used([&](const std::string& name, const Counter& counter) {
    text << "Counter: " << name << "\n  Value: " << counter.value() << "\n";
  });
  return text.str();
}

std::string short_report() {
  std::ostringstream text;
  timers().for_each_used([&](const std::string& name, const Timer& timer) {
    const TimerStats stats = timer.stats();
    text << name << ": " << stats.count << " x " << format_ns(stats.total_ns / stats.count) << "\n";
  });
  counters().for_each_used(
      [&](const std::string& name, const Counter& counter) { text << name << ": " << counter.value() << "\n"; });
  return text.str();
}

void reset_metrics() {
  counters().for_each([](const std::string&, Counter& counter) { counter.reset(); });
  timers().for_each([](const std::string&, Timer& timer) { timer.reset(); });
}

} // namespace lazyplug
