#include "backend/caches/beginnings.h"

#include <array>
#include <atomic>
#include <utility>

#include "backend/caches/steps.h"
#include "common/fork_safe_mutex.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

class Beginnings {
 public:
  void note_graph(size_t num_ops, uint64_t first_step, uint64_t times) {
    const uint64_t step = current_step();
    if (uint64_t unset = begin_.load(std::memory_order_relaxed); unset == 0) {
      noticed_in_.store(step, std::memory_order_relaxed);
      begin_.compare_exchange_strong(unset, step, std::memory_order_relaxed);
    }
    if (times == kOften) {
      has_repeated_.store(true, std::memory_order_relaxed);
    }
    // Of a program that goes on as it has there is nothing to be noted.
    if (first_step < step && !is_watching_.load(std::memory_order_relaxed)) {
      return;
    }
    const ForkSafeLock lock(mutex_);
    if (!is_watching_.load(std::memory_order_relaxed)) {
      is_watching_.store(true, std::memory_order_relaxed);
      watched_since_ = step;
      watches_beginning_ = is_beginning();
      num_repeating_ = num_old_ = num_others_ = 0;
      this_step_ = {step};
    } else if (step != this_step_.number) {
      end_step(step);
    }
    (first_step < watched_since_ ? num_old_
     : first_step < step         ? this_step_.num_repeated
                                 : this_step_.num_new) += num_ops;
    if (first_step < begin_.load(std::memory_order_relaxed) + kSteps) {
      this_step_.num_of_beginning += num_ops;
    }
  }

  bool note_ages(const Ages& ages, bool is_known) {
    if (has_been_left(ages)) {
      begin_at(current_step());
      return true;
    }
    if (ages.oldest_read == Ages::kNone) {
      return false; // nothing is told by what all programs do, such as to draw numbers
    }
    const bool is_of_program = ages.oldest_read <= newest_of_program_.load(std::memory_order_relaxed);
    if (is_known && !is_of_program) {
      return false; // it may be of the program before, if that makes all its tensors in each step, or of another one
    }
    newest_of_program_.store(ages.newest, std::memory_order_relaxed);
    if (is_of_program) {
      if (num_of_program_.load(std::memory_order_relaxed) < kQuiet) {
        num_of_program_.fetch_add(1, std::memory_order_relaxed);
      }
      return false;
    }
    const bool is_another = num_of_program_.exchange(0, std::memory_order_relaxed) >= kQuiet;
    if (is_another) {
      noticed_in_.store(current_step(), std::memory_order_relaxed);
      begin_at(current_step());
    }
    return is_another;
  }

  void note_update() {
    num_updates_.fetch_add(1, std::memory_order_relaxed);
  }

  bool is_beginning() const {
    const uint64_t begin = begin_.load(std::memory_order_relaxed);
    if (begin == 0) {
      return true;
    }
    const uint64_t num_steps = current_step() - begin;
    const bool has_trained = num_updates_.load(std::memory_order_relaxed) >= kSteps && num_steps >= kLeastSteps;
    return num_steps < kSteps && !has_trained && !has_repeated_.load(std::memory_order_relaxed);
  }

  void begin_at(uint64_t step) {
    is_watching_.store(false, std::memory_order_relaxed);
    has_repeated_.store(false, std::memory_order_relaxed);
    num_updates_.store(0, std::memory_order_relaxed);
    begin_.store(step, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kSteps = 48;
  static constexpr uint64_t kLeastDistance = 2 * kSteps; // from a beginning to one that is noticed by repetition
  static constexpr uint64_t kLeastSteps = 5;             // there are programs that update each parameter by itself
  static constexpr uint64_t kOften = 40;
  static constexpr uint64_t kQuiet = 16; // graphs, and steps
  static constexpr uint64_t kHabit = 2;  // times that the same graph came again
  static constexpr size_t kEnough = 6;
  static constexpr size_t kLongStep = 128; // ops: it counts twice, one of twice as many three times
  static constexpr size_t kLeastShare = 4; // the old program goes on where this part of the ops is its own

  struct Step {
    uint64_t number = 0;
    size_t num_repeated = 0;     // ops of graphs that have come in other steps since steps are watched
    size_t num_new = 0;          // likewise, that had not come
    size_t num_of_beginning = 0; // of these, and of old graphs, what came first in the beginning
  };

  // Of a device's memory.
  struct Emptiness {
    std::atomic<uint64_t> times{0};   // when the last graph came
    std::atomic<uint64_t> in_step{0}; // in which that changed
    std::atomic<uint64_t> graph{0};   // which came first then
    std::atomic<uint64_t> num_same{0};
  };

  // For the first time in a while: there are programs that leave nothing behind in each of their steps.
  bool has_been_left(const Ages& ages) {
    Emptiness& memory = memories_[ages.device];
    if (memory.times.exchange(ages.times_empty, std::memory_order_relaxed) == ages.times_empty) {
      return false;
    }
    const uint64_t step = current_step();
    if (step < memory.in_step.exchange(step, std::memory_order_relaxed) + kQuiet) {
      return false;
    }
    const bool is_same = memory.graph.exchange(ages.graph, std::memory_order_relaxed) == ages.graph && ages.graph != 0;
    const uint64_t num_same = is_same ? memory.num_same.load(std::memory_order_relaxed) + 1 : 0;
    memory.num_same.store(num_same, std::memory_order_relaxed);
    return num_same < kHabit;
  }

  void end_step(uint64_t next) {
    const auto [number, num_repeated, num_new, num_of_beginning] = std::exchange(this_step_, {next});
    num_others_ += num_repeated + num_new;
    if (num_old_ * kLeastShare >= num_old_ + num_others_) {
      is_watching_.store(false, std::memory_order_relaxed);
    } else if (num_new >= num_repeated) {
      num_repeating_ = num_new != 0 ? 0 : num_repeating_;
    } else if ((num_repeating_ += 1 + num_repeated / kLongStep) >= kEnough) {
      // What ran at once for a while is not seen until much later.
      const bool is_young = next < begin_.load(std::memory_order_relaxed) + kLeastDistance;
      const bool is_known = num_of_beginning * kLeastShare >= num_repeated + num_new;
      if (watches_beginning_ && (is_young || is_known)) {
        is_watching_.store(false, std::memory_order_relaxed); // it is what has begun
      } else if (next >= noticed_in_.load(std::memory_order_relaxed) + kLeastDistance) {
        noticed_in_.store(next, std::memory_order_relaxed);
        begin_at(next);
      }
    }
  }

  std::atomic<uint64_t> begin_{0};      // the step; 0: no graph has come
  std::atomic<uint64_t> noticed_in_{0}; // the step in which the last one was noticed that had not been left
  std::atomic<bool> has_repeated_{false};
  std::atomic<uint64_t> num_updates_{0};       // since it began
  std::atomic<uint64_t> newest_of_program_{0}; // tensor that it has had
  std::atomic<uint64_t> num_of_program_{0};    // graphs in a row that read what it had had
  std::array<Emptiness, kMaxDevices> memories_;
  std::atomic<bool> is_watching_{false};
  ForkSafeMutex mutex_; // guards all members below
  uint64_t watched_since_ = 0;
  bool watches_beginning_ = false; // steps are watched since then
  size_t num_repeating_ = 0;       // steps in a row, the long ones more than once
  size_t num_old_ = 0;             // ops of graphs that had come before
  size_t num_others_ = 0;          // of others, in steps that have ended
  Step this_step_;
};

Beginnings& beginnings() {
  static auto* all = new Beginnings();
  return *all;
}

} // namespace

void note_graph(size_t num_ops, uint64_t first_step, uint64_t times) {
  beginnings().note_graph(num_ops, first_step, times);
}

bool note_ages(const Ages& ages, bool is_known) {
  return beginnings().note_ages(ages, is_known);
}

void note_update() {
  beginnings().note_update();
}

bool is_beginning() {
  return beginnings().is_beginning();
}

void begin_anew() {
  beginnings().begin_at(0);
}

} // namespace lazyplug
