// A stand-in for the backend: counts what is recorded and run, so that tests of device/ can assert the work done.
#pragma once

#include "device/callbacks.h"
#include "device/event.h"
#include "device/runtime.h"

#include <map>
#include <tuple>
#include <vector>

namespace lazyplug {

// How many lazy devices the tests run with; environment.cpp sets it.
constexpr c10::DeviceIndex kTestDevices = 3;

inline c10::Stream test_stream(c10::DeviceIndex device, c10::StreamId id = 0) {
  return c10::Stream(c10::Stream::UNSAFE, lazy_device(device), id);
}

// Registers itself as the executor for its lifetime.
class FakeExecutor {
 public:
  struct Places {
    uint64_t recorded = 0;
    uint64_t completed = 0;
  };
  using Wait = std::tuple<c10::Stream, c10::Stream, uint64_t>;

  FakeExecutor() {
    DeviceCallbacks callbacks;
    callbacks.synchronize = [this](c10::DeviceIndex device) { synchronized.push_back(device); };
    callbacks.synchronize_stream = [this](c10::Stream stream, uint64_t place) {
      synchronized_streams.push_back(stream);
      if (places(stream).completed < place) {
        run_all(stream);
      }
    };
    callbacks.flush = [this](c10::Stream stream) {
      flushed.push_back(stream);
      if (runs_on_flush) {
        run_all(stream);
      }
    };
    callbacks.wait_for = [this](c10::Stream waiting, c10::Stream stream, uint64_t place) {
      waits.emplace_back(waiting, stream, place);
    };
    callbacks.recorded_place = [this](c10::Stream stream) { return places(stream).recorded; };
    callbacks.completed_place = [this](c10::Stream stream) { return places(stream).completed; };
    callbacks.empty_cache = [this](c10::DeviceIndex device) { emptied.push_back(device); };
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

  Places& places(c10::Stream stream) {
    return places_[{stream.device_index(), stream.id()}];
  }

  void record_op(c10::Stream stream) {
    ++places(stream).recorded;
  }

  void run_all(c10::Stream stream) {
    places(stream).completed = places(stream).recorded;
    stamp_reached_events(stream);
  }

  bool runs_on_flush = true;
  std::vector<c10::DeviceIndex> synchronized;
  std::vector<c10::Stream> synchronized_streams;
  std::vector<c10::Stream> flushed;
  std::vector<c10::DeviceIndex> emptied;
  std::vector<Wait> waits;
  std::vector<std::pair<c10::StorageImpl*, size_t>> resized;

 private:
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Places> places_;
};

} // namespace lazyplug
