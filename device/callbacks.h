// What device/ needs from the executor. The backend sits above device/ and registers this once, when it is loaded.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace c10 {
struct StorageImpl;
}

namespace lazyplug {

// A place is how many operations have been recorded on a stream up to some moment. Operations of a stream run in the
// order of recording, so "place p is completed" means that the first p operations have run. Both places only ever grow.
//
// All members must be set, may be called from any thread and may be called with or without Python's GIL; none is
// called with a lock of device/ held.
struct DeviceCallbacks {
  // Waits until everything recorded on all streams of the device has run; raises the first error that nobody has seen.
  std::function<void(c10::DeviceIndex)> synchronize = [](c10::DeviceIndex) {};

  // The same for one stream, and for what was recorded up to a place. A stream that is not completed up to there has
  // all of its work started.
  std::function<void(c10::Stream, uint64_t)> synchronize_stream = [](c10::Stream, uint64_t) {};

  // Starts everything recorded on the stream, and does not wait for it.
  std::function<void(c10::Stream)> flush = [](c10::Stream) {};

  // Work recorded on the first stream from now on runs after the place on the second.
  std::function<void(c10::Stream, c10::Stream, uint64_t)> wait_for = [](c10::Stream, c10::Stream, uint64_t) {};

  // Must not start anything: the autograd engine records events all the time, and they must not cut the trace.
  std::function<uint64_t(c10::Stream)> recorded_place = [](c10::Stream) { return uint64_t{0}; };
  std::function<uint64_t(c10::Stream)> completed_place = [](c10::Stream) { return uint64_t{0}; };

  // Lets go of what is kept of the device only to save work.
  std::function<void(c10::DeviceIndex)> empty_cache = [](c10::DeviceIndex) {};

  // Gives the storage a new size in bytes and keeps the leading content.
  std::function<void(c10::StorageImpl*, size_t)> resize_storage;
};

// Not thread-safe: before any use of a device. Until then a device is one on which nothing is ever recorded.
void set_device_callbacks(DeviceCallbacks callbacks);

const DeviceCallbacks& device_callbacks();

} // namespace lazyplug
