#include "backend/caches/compile_storms.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>

#include "backend/caches/steps.h"
#include "backend/ops/call_kinds.h"
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
    const uint64_t step = current_step();
    const ForkSafeLock lock(mutex_);
    last_.push_front({graph, std::move(kinds), step, false});
    while (last_.size() > limit || last_.back().step + kWindow < step) {
      last_.pop_back();
    }
    any_.store(true, std::memory_order_relaxed);
    const size_t fewer = is_of_another_ ? limit - std::min(limit, kFewerOfAnother) : limit / kDivisorAgain;
    const size_t enough = is_soon_after_storm(step) ? std::min(limit, std::max(fewer, kLeastAgain)) : limit;
    if (last_.size() >= enough && 2 * num_reused() < last_.size()) {
      begin(step);
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
    return is_on() && config().max_unused_graphs.get() != 0;
  }

  bool concerns(const Hash128& kind, int64_t num_elements, const StorageIds& storages) {
    const uint64_t step = current_step();
    const ForkSafeLock lock(mutex_);
    if (step != this_step_.number) {
      end_step(step);
    }
    this_step_.calls = hash_combine(hash_combine(this_step_.calls, kind), static_cast<uint64_t>(num_elements));
    for (const uint64_t storage : storages) {
      this_step_.add_storage(storage);
    }
    ++this_step_.num_calls;
    return kinds_.count(kind) != 0;
  }

  void note_another_program() {
    const ForkSafeLock lock(mutex_);
    last_.clear();
    is_of_another_ = is_soon_after_storm(current_step());
    if (is_on()) {
      end_at(current_step());
    }
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    last_.clear();
    kinds_.clear();
    begin_ = end_ = 0;
    num_repeated_ = 0;
    enough_repeated_ = kRepeated;
    is_of_another_ = false;
    storming_.store(false, std::memory_order_relaxed);
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  // So many graphs fewer are enough when it comes again, but more than a step that is tried whole and in pieces takes.
  static constexpr size_t kDivisorAgain = 4;
  static constexpr size_t kLeastAgain = 8;
  // Of the next program so many fewer are: the one before may go on, and only look like another one; or else it may
  // have some sizes, each of whose steps is compiled whole and in pieces before the first of them comes again.
  static constexpr size_t kFewerOfAnother = 8;
  // Graphs that were compiled so many steps ago tell nothing: a process may run many programs, one after the other.
  static constexpr uint64_t kWindow = 256;
  // So many steps in a row, each like one of the last few, are those of a program that repeats; more if that was wrong.
  static constexpr size_t kRepeated = 4;
  static constexpr size_t kMostRepeated = 16;
  static constexpr size_t kGrowth = 2;
  // A step counts for several if so many calls each are the same: a program may read but every tenth loss.
  static constexpr size_t kCallsOfStep = 512;

  struct Compiled {
    Hash128 graph;
    Kinds kinds;
    uint64_t step;
    bool reused;
  };
  struct Step {
    uint64_t number = 0;
    uint64_t latest_storage = 0; // that has been seen
    uint64_t last_old = 0;       // storage, of those seen in earlier steps
    uint64_t first_new = 0;      // 0: none has been seen
    Hash128 calls;
    size_t num_calls = 0;

    // What is older than the step is anything; what it has made itself is known by when.
    void add_storage(uint64_t id) {
      latest_storage = std::max(latest_storage, id);
      first_new = first_new == 0 && id > last_old ? id : first_new;
      calls = hash_combine(calls, id > last_old ? id - first_new + 1 : 0);
    }
  };

  // Or in it: other kinds of calls may be compiled. After a longer peace than the last storm took it is another one.
  bool is_soon_after_storm(uint64_t step) const {
    return is_on() || (end_ != 0 && step < end_ + std::max(end_ - begin_, kWindow));
  }
  bool is_on() const {
    return storming_.load(std::memory_order_relaxed);
  }

  // The storm is over as soon as the program repeats itself.
  void end_step(uint64_t next) {
    const bool is_known = std::find(last_steps_.begin(), last_steps_.end(), this_step_.calls) != last_steps_.end();
    num_repeated_ = is_known ? num_repeated_ + std::max<size_t>(1, this_step_.num_calls / kCallsOfStep) : 0;
    last_steps_[next_step_++ % last_steps_.size()] = this_step_.calls;
    const uint64_t latest_storage = this_step_.latest_storage;
    this_step_ = Step();
    this_step_.number = next;
    this_step_.latest_storage = this_step_.last_old = latest_storage;
    if (num_repeated_ >= enough_repeated_) {
      end_at(next);
    }
  }
  void end_at(uint64_t step) {
    num_repeated_ = 0;
    end_ = step;
    storming_.store(false, std::memory_order_relaxed);
  }

  size_t num_reused() const {
    return static_cast<size_t>(
        std::count_if(last_.begin(), last_.end(), [](const Compiled& compiled) { return compiled.reused; }));
  }

  void begin(uint64_t step) {
    if (!is_on()) {
      const bool is_same = is_soon_after_storm(step);
      enough_repeated_ = is_same ? std::min(kGrowth * enough_repeated_, kMostRepeated) : kRepeated;
      if (!is_same) {
        kinds_.clear();
      }
      begin_ = step;
    }
    num_repeated_ = 0;
    is_of_another_ = false;
    for (const Compiled& compiled : last_) {
      if (!compiled.reused) {
        kinds_.insert(compiled.kinds.begin(), compiled.kinds.end());
      }
    }
    last_.clear();
    storms_.add();
    storming_.store(true, std::memory_order_relaxed);
  }

  Counter& storms_ = counter("CompileStorm");
  std::atomic<bool> storming_{false};
  std::atomic<bool> any_{false}; // some graph of `last_` has not been reused
  ForkSafeMutex mutex_;          // guards all members below
  std::deque<Compiled> last_;    // compiled since the last storm, the latest first
  Kinds kinds_;
  uint64_t begin_ = 0; // of the last storm: the step
  uint64_t end_ = 0;   // likewise; 0: there was none
  size_t enough_repeated_ = kRepeated;
  bool is_of_another_ = false; // another program has begun soon after it
  Step this_step_;             // of a storm
  std::array<Hash128, 8> last_steps_;
  size_t next_step_ = 0; // where in them
  size_t num_repeated_ = 0;
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

bool is_in_storm(const Hash128& kind, int64_t num_elements, const StorageIds& storages) {
  return compile_storms().concerns(kind, num_elements, storages);
}

void note_another_program() {
  compile_storms().note_another_program();
}

void clear_storms() {
  compile_storms().clear();
}

} // namespace lazyplug
