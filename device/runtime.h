// The lazy devices of this process: how many there are and which one is current.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <limits>
#include <optional>

namespace lazyplug {

constexpr c10::DeviceType kLazyDevice = c10::DeviceType::PrivateUse1;

// Bounds every per-device table; the flag device_count accepts no more.
constexpr size_t kMaxDevices = std::numeric_limits<c10::DeviceIndex>::max();

// Read from the flag device_count at the first call and fixed from then on. Raises ValueError while the environment
// holds an invalid count.
c10::DeviceIndex device_count();

// The same for callers that must not raise: 0, with a warning, where device_count() raises.
c10::DeviceIndex device_count_or_zero() noexcept;

// Raises RuntimeError unless 0 <= index < device_count().
void check_device_index(c10::DeviceIndex index);

// The index itself, or the current device for -1, which stands for "no index given". Raises RuntimeError if there is
// no such device.
c10::DeviceIndex resolve_device_index(c10::DeviceIndex index);

// Raises RuntimeError if it is asked for: memory of the device cannot be.
void check_not_pinned(std::optional<bool> pin_memory);

// Each thread has its own current device; it starts with 0.
c10::DeviceIndex current_device();

// Raise RuntimeError, and change nothing, if there is no such device or in a bad fork.
void set_device(c10::DeviceIndex index);
// Returns the previous device.
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

// exchange_device(), except that a negative index changes nothing.
c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex index);

// For destructors: `index` was the current device before.
void restore_device(c10::DeviceIndex index) noexcept;

inline c10::Device lazy_device(c10::DeviceIndex index) {
  return {kLazyDevice, index};
}

} // namespace lazyplug
