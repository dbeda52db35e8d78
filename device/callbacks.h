// What device/ needs from the executor. The backend sits above device/ and registers this once, when it is loaded.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace c10 {
struct StorageImpl;
}

namespace lazyplug {

// A place is how many operations have been recorded on a device up to some moment. Operations run in the order of
// recording, so "place p is completed" means that the first p operations have run. Both places only ever grow.
//
// All members must be set, may be called from any thread and may be called with or without Python's GIL; none is
// called with a lock of device/ held. They raise the first error of what they waited for.
struct DeviceCallbacks {
  // Waits until everything recorded on the device has run.
  std::function<void(c10::DeviceIndex)> synchronize = [](c10::DeviceIndex) {};

  // Starts everything recorded on the device; need not wait for it.
  std::function<void(c10::DeviceIndex)> flush = [](c10::DeviceIndex) {};

  // Must not start anything: the autograd engine records events all the time, and they must not cut the trace.
  std::function<uint64_t(c10::DeviceIndex)> recorded_place = [](c10::DeviceIndex) { return uint64_t{0}; };
  std::function<uint64_t(c10::DeviceIndex)> completed_place = [](c10::DeviceIndex) { return uint64_t{0}; };

  // Gives the storage a new size in bytes and keeps the leading content.
  std::function<void(c10::StorageImpl*, size_t)> resize_storage;
};

// Not thread-safe: before any use of a device. Until then a device is one on which nothing is ever recorded.
void set_device_callbacks(DeviceCallbacks callbacks);

const DeviceCallbacks& device_callbacks();

} // namespace lazyplug
