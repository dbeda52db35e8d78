// The allocator of the lazy devices, as c10 sees it. Device memory is host memory, from a pool per device.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace lazyplug {

// Registered with c10 for the lazy device type. allocate() takes memory of the calling thread's current device;
// raw_allocate() and raw_deallocate() work. While the flag memory_cache is off, memory comes from the CPU allocator and
// is not counted. Memory may be freed by any thread. Thread-safe.
c10::DeviceAllocator* device_allocator();

} // namespace lazyplug
