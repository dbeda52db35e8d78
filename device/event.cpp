#include "device/event.h"

#include "device/callbacks.h"
#include "device/fork.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <unordered_set>

namespace lazyplug {
namespace {

// Guards `unstamped` and Event::reached_at_. Both are never destroyed: events may outlive static destruction.
std::mutex& stamp_mutex() {
  static std::mutex& mutex = *new std::mutex();
  return mutex;
}

// The timing events that have been recorded and not been given a time.
std::unordered_set<Event*>& unstamped() {
  static auto& events = *new std::unordered_set<Event*>();
  return events;
}

// Whether there may be any; set with the lock.
std::atomic<bool> any_unstamped{false};

} // namespace

Event::~Event() {
  // A thread of the parent may have held the lock when this process was forked.
  if (timing_ && !is_in_bad_fork()) {
    std::lock_guard<std::mutex> lock(stamp_mutex());
    unstamped().erase(this);
  }
}

void Event::record(c10::Stream stream) {
  const uint64_t place = device_callbacks().recorded_place(stream);
  if (!timing_) {
    stream_ = stream;
    place_ = place;
    return;
  }
  {
    std::lock_guard<std::mutex> lock(stamp_mutex());
    stream_ = stream;
    place_ = place;
    reached_at_.reset();
    unstamped().insert(this);
    any_unstamped = true;
  }
  device_callbacks().flush(stream);
  stamp_reached_events(stream);
}

// The worker first counts what has run, then gives the time. Whoever sees the count may go on, and what comes of that
// must not be earlier, so he gives the time himself.
bool Event::reached() const {
  if (!stream_) {
    return true;
  }
  const bool reached = device_callbacks().completed_place(*stream_) >= place_;
  if (reached && timing_) {
    stamp_reached_events(*stream_);
  }
  return reached;
}

bool Event::query() {
  if (reached()) {
    return true;
  }
  device_callbacks().flush(*stream_);
  return reached();
}

void Event::synchronize() {
  if (stream_) {
    device_callbacks().synchronize_stream(*stream_, place_);
    reached();
  }
}

void Event::block(c10::Stream stream) const {
  if (!reached()) {
    device_callbacks().wait_for(stream, *stream_, place_);
    reached(); // meanwhile, perhaps: then there is no wait
  }
}

void stamp_reached_events(c10::Stream stream) {
  if (!any_unstamped) {
    return; // who records one now looks afterwards himself
  }
  const uint64_t completed = device_callbacks().completed_place(stream);
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard<std::mutex> lock(stamp_mutex());
  std::erase_if(unstamped(), [&](Event* event) {
    const bool reached = event->stream_ == stream && event->place_ <= completed;
    if (reached) {
      event->reached_at_ = now;
    }
    return reached;
  });
  any_unstamped = !unstamped().empty();
}

double elapsed_ms(const Event& start, const Event& end) {
  TORCH_CHECK_VALUE(start.timing_ && end.timing_, "Both events must be created with argument 'enable_timing=True'.");
  for (const Event* event : {&start, &end}) {
    event->reached();
  }
  std::lock_guard<std::mutex> lock(stamp_mutex());
  TORCH_CHECK(start.reached_at_ && end.reached_at_, "Both events must be completed before calculating elapsed time.");
  return std::chrono::duration<double, std::milli>(*end.reached_at_ - *start.reached_at_).count();
}

} // namespace lazyplug
