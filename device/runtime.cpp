#include "device/runtime.h"

#include "common/config.h"
#include "device/fork.h"

#include <c10/util/Exception.h>

#include <utility>

namespace lazyplug {
namespace {

thread_local c10::DeviceIndex current_index = 0;

} // namespace

c10::DeviceIndex device_count() {
  static const auto count = static_cast<c10::DeviceIndex>(config().device_count.get());
  return count;
}

c10::DeviceIndex device_count_or_zero() noexcept {
  try {
    return device_count();
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("no lazy device is available: ", error.what());
    return 0;
  }
}

void check_not_pinned(std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

void check_device_index(c10::DeviceIndex index) {
  TORCH_CHECK(
      0 <= index && index < device_count(),
      "LAZY error: The device index is out of range: invalid device ordinal ",
      static_cast<int>(index),
      ": this process has ",
      static_cast<int>(device_count()),
      " lazy device(s), numbered from 0; LAZYPLUG_DEVICE_COUNT sets how many");
}

c10::DeviceIndex resolve_device_index(c10::DeviceIndex index) {
  if (index == -1) {
    return current_device();
  }
  check_device_index(index);
  return index;
}

c10::DeviceIndex current_device() {
  return current_index;
}

void set_device(c10::DeviceIndex index) {
  exchange_device(index);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  ensure_initialized();
  check_device_index(index);
  return std::exchange(current_index, index);
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex index) {
  return index < 0 ? current_device() : exchange_device(index);
}

void restore_device(c10::DeviceIndex index) noexcept {
  current_index = index;
}

} // namespace lazyplug
