#include "backend/execution/overlap.h"

#include <ATen/Parallel.h>

#include <sched.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

#include "common/config.h"
#include "lowering/calls/light_calls.h"

namespace lazyplug {

bool pays_to_overlap(int num_threads, int num_processors) {
  return 2 * num_threads <= num_processors;
}

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(/*this thread*/ 0, sizeof(set), &set) == 0) {
    return CPU_COUNT(&set);
  }
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); // more than a set can hold
}

float overlapping_work() {
  constexpr float kEverything = std::numeric_limits<float>::infinity();
  constexpr float kNothing = -1;
  const Config& flags = config();
  const std::string choice = flags.overlap.get();
  if (choice != "auto" || !flags.schedule.get().empty()) {
    return choice == "never" ? kNothing : kEverything;
  }
  const int num_threads = at::get_num_threads();
  const int num_processors = available_processors();
  if (pays_to_overlap(num_threads, num_processors)) {
    return kEverything;
  }
  return pays_to_overlap(1, num_processors) ? light_limit(num_threads) : kNothing;
}

bool may_run_side_calls(int num_threads) {
  const Config& flags = config();
  const std::string choice = flags.overlap.get();
  if (flags.side_calls.get() < 0 || choice == "never") {
    return false;
  }
  return choice == "always" || !flags.schedule.get().empty() ||
         (at::get_num_interop_threads() > 1 && pays_to_overlap(num_threads, available_processors()));
}

float OverlappingWork::get() {
  const int num_threads = at::get_num_threads();
  const Config& flags = config();
  const uint64_t version = flags.overlap.version() + flags.schedule.version() + flags.side_calls.version();
  if (answers_left_ == 0 || num_threads != num_threads_ || version != version_) {
    answers_left_ = kAnswers;
    num_threads_ = num_threads;
    version_ = version;
    work_ = overlapping_work();
    may_run_side_calls_ = lazyplug::may_run_side_calls(num_threads);
  }
  --answers_left_;
  return work_;
}

} // namespace lazyplug
