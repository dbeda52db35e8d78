#include "device/callbacks.h"

#include <c10/util/Exception.h>

#include <utility>

namespace lazyplug {
namespace {

// Never destroyed: threads may synchronise during exit.
DeviceCallbacks& current_callbacks() {
  static DeviceCallbacks& callbacks = *new DeviceCallbacks();
  return callbacks;
}

} // namespace

void set_device_callbacks(DeviceCallbacks callbacks) {
  TORCH_INTERNAL_ASSERT(
      callbacks.synchronize && callbacks.synchronize_stream && callbacks.flush && callbacks.wait_for &&
      callbacks.recorded_place && callbacks.completed_place && callbacks.empty_cache && callbacks.resize_storage);
  current_callbacks() = std::move(callbacks);
}

const DeviceCallbacks& device_callbacks() {
  return current_callbacks();
}

} // namespace lazyplug
