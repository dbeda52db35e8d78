// Places in the pipeline where tests make the plugin fail, to see that nothing is lost and nothing hangs.
#pragma once

#include <atomic>
#include <cstdint>

namespace lazyplug {

enum class FailPoint : uint8_t {
  kNone,
  kThread,     // where a worker starts its thread
  kAllocation, // where a kernel, or the delivery of its result, takes device memory
  kCompile,    // before a graph is looked up or compiled
  kInputs,     // while a job takes its inputs
  kRun,        // before the instructions run
  kDelivery,   // before a result is handed over
};

inline std::atomic<FailPoint> armed_fail_point{FailPoint::kNone};
inline std::atomic<int> passes_before_failure{0};

// The next pass of this point but so many, on any thread, raises; the passes after it do not.
inline void arm(FailPoint point, int passes = 0) {
  passes_before_failure = passes;
  armed_fail_point = point;
}

[[noreturn]] void raise_injected_failure();

inline void pass(FailPoint point) {
  if (armed_fail_point.load(std::memory_order_relaxed) == point && passes_before_failure.fetch_sub(1) == 0) {
    armed_fail_point = FailPoint::kNone;
    raise_injected_failure();
  }
}

} // namespace lazyplug
