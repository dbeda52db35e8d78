// Memory of the lazy devices: host memory with a lazy device's name on it.
#pragma once

#include <c10/core/Allocator.h>

namespace lazyplug {

// Registered with c10 for the lazy device type. allocate() takes the memory from the CPU allocator, for the calling
// thread's current device; raw_allocate() and raw_deallocate() work. Thread-safe.
c10::Allocator* device_allocator();

} // namespace lazyplug
