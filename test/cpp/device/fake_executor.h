// A stand-in for the backend: counts what is recorded and run, so that tests of device/ can assert the work done.
#pragma once

#include "device/callbacks.h"
#include "device/event.h"

#include <array>
#include <vector>

namespace lazyplug {

// How many lazy devices the tests run with; environment.cpp sets it.
constexpr c10::DeviceIndex kTestDevices = 3;

// Registers itself as the executor for its lifetime.
class FakeExecutor {
 public:
  FakeExecutor() {
    DeviceCallbacks callbacks;
    callbacks.synchronize = [this](c10::DeviceIndex device) {
      synchronized.push_back(device);
      run_all(device);
    };
    callbacks.flush = [this](c10::DeviceIndex device) {
      flushed.push_back(device);
      if (runs_on_flush) {
        run_all(device);
      }
    };
    callbacks.recorded_place = [this](c10::DeviceIndex device) { return recorded[device]; };
    callbacks.completed_place = [this](c10::DeviceIndex device) { return completed[device]; };
    callbacks.resize_storage = [this](c10::StorageImpl* storage, size_t nbytes) {
      resized.emplace_back(storage, nbytes);
    };
    set_device_callbacks(callbacks);
  }

  ~FakeExecutor() {
    DeviceCallbacks idle;
    idle.resize_storage = [](c10::StorageImpl*, size_t) {};
    set_device_callbacks(idle);
  }

  void record_op(c10::DeviceIndex device) {
    ++recorded[device];
  }

  void run_all(c10::DeviceIndex device) {
    completed[device] = recorded[device];
    stamp_reached_events(device);
  }

  bool runs_on_flush = true;
  std::array<uint64_t, kTestDevices> recorded{};
  std::array<uint64_t, kTestDevices> completed{};
  std::vector<c10::DeviceIndex> synchronized;
  std::vector<c10::DeviceIndex> flushed;
  std::vector<std::pair<c10::StorageImpl*, size_t>> resized;
};

} // namespace lazyplug
