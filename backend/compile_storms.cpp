#include "backend/compile_storms.h"

#include <algorithm>
#include <atomic>
#include <deque>

#include "backend/call_kinds.h"
#include "backend/varying_sizes.h"
#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {

class CompileStorms {
 public:
  void note_compiled(const Hash128& graph, const Trace& trace) {
    const auto limit = static_cast<size_t>(config().max_unused_graphs.get());
    if (limit == 0) {
      return;
    }
    Kinds kinds = kinds_in(trace);
    const ForkSafeLock lock(mutex_);
    last_.push_front({graph, std::move(kinds), false});
    last_.resize(std::min(last_.size(), limit));
    any_.store(true, std::memory_order_relaxed);
    if (last_.size() >= std::max<size_t>(limit / divisor_, 2) && 2 * num_reused() < last_.size()) {
      begin(current_step());
    }
  }

  void note_reused(const Hash128& graph) {
    if (!any_.load(std::memory_order_relaxed)) {
      return;
    }
    const ForkSafeLock lock(mutex_);
    for (Compiled& compiled : last_) {
      compiled.reused |= compiled.graph == graph;
    }
    if (num_reused() == last_.size()) {
      // Peace: until a graph is compiled there is nothing to be noted.
      any_.store(false, std::memory_order_relaxed);
    }
  }

  bool is_storming() const {
    return current_step() < end_.load(std::memory_order_relaxed) && config().max_unused_graphs.get() != 0;
  }

  bool concerns(const Call& call) {
    const Hash128 kind = kind_of(call);
    const ForkSafeLock lock(mutex_);
    return kinds_.count(kind) != 0;
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    last_.clear();
    kinds_.clear();
    steps_ = 0;
    divisor_ = 1;
    end_.store(0, std::memory_order_relaxed);
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kFirstSteps = 64;
  static constexpr uint64_t kMostSteps = 4096;
  static constexpr uint64_t kGrowth = 4;
  // So many graphs fewer are enough when it comes again.
  static constexpr size_t kDivisorAgain = 4;

  struct Compiled {
    Hash128 graph;
    Kinds kinds;
    bool reused;
  };

  size_t num_reused() const {
    return static_cast<size_t>(
        std::count_if(last_.begin(), last_.end(), [](const Compiled& compiled) { return compiled.reused; }));
  }

  void begin(uint64_t step) {
    static Counter& storms = counter("CompileStorm");
    // After a longer peace than the last storm took it is another one.
    const uint64_t last_end = end_.load(std::memory_order_relaxed);
    const bool is_same = last_end != 0 && step < last_end + steps_;
    if (!is_same) {
      kinds_.clear();
    }
    steps_ = is_same ? std::min(kGrowth * steps_, kMostSteps) : kFirstSteps;
    divisor_ = kDivisorAgain;
    for (const Compiled& compiled : last_) {
      if (!compiled.reused) {
        kinds_.insert(compiled.kinds.begin(), compiled.kinds.end());
      }
    }
    last_.clear();
    storms.add();
    end_.store(step + steps_, std::memory_order_relaxed);
  }

  std::atomic<uint64_t> end_{0}; // the step in which it is tried again
  std::atomic<bool> any_{false}; // some graph of `last_` has not been reused
  ForkSafeMutex mutex_;          // guards all members below
  std::deque<Compiled> last_;    // compiled since the last storm, the latest first
  Kinds kinds_;
  uint64_t steps_ = 0; // that the last storm takes
  size_t divisor_ = 1;
};

CompileStorms& compile_storms() {
  static auto* storms = new CompileStorms();
  return *storms;
}

} // namespace

void note_compiled(const Hash128& graph, const Trace& trace) {
  compile_storms().note_compiled(graph, trace);
}

void note_reused(const Hash128& graph) {
  compile_storms().note_reused(graph);
}

bool is_storming() {
  return compile_storms().is_storming();
}

bool is_in_storm(const Call& call) {
  return compile_storms().concerns(call);
}

void clear_storms() {
  compile_storms().clear();
}

} // namespace lazyplug
