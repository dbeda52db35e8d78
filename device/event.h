// Events: places in a device's order of execution that can be waited for and timed.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace lazyplug {

// The life of an event: new, then after each record() pending until the operations recorded before it on its stream
// have run, then reached. Recording notes the place, and starts nothing, unless the event is for timing: then the
// stream's work is started, so that the time is that of the place itself.
//
// Locking: as with every backend's events, one thread at a time uses an event. Only the time stamp is written by
// other threads, in stamp_reached_events(), and has a lock in event.cpp.
class Event {
 public:
  explicit Event(bool timing) : timing_(timing) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  // Recording again moves the event.
  void record(c10::Stream stream);

  // What is recorded on the stream from now on runs after the event. Waits for nothing.
  void block(c10::Stream stream) const;

  // Whether the event is reached. If it is not, starts what is pending, so that polling makes progress.
  bool query();

  // Waits until the event is reached. A new event counts as reached.
  void synchronize();

 private:
  friend double elapsed_ms(const Event& start, const Event& end);
  friend void stamp_reached_events(c10::Stream stream);

  bool reached() const;

  const bool timing_;
  std::optional<c10::Stream> stream_; // none: new
  uint64_t place_ = 0;
  // When the event was reached; only if timing_.
  std::optional<std::chrono::steady_clock::time_point> reached_at_;
};

// Milliseconds between the moments at which both events were reached: of execution, not of recording. Raises ValueError
// unless both were made for timing, RuntimeError unless both have been reached.
double elapsed_ms(const Event& start, const Event& end);

// Gives the time to every timing event of the stream that has been reached and has none yet. To be called whenever
// completed_place has moved.
void stamp_reached_events(c10::Stream stream);

} // namespace lazyplug
