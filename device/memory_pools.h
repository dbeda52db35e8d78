// The memory pools of this process: one for each device, and one for pinned host memory.
#pragma once

#include "device/memory_pool.h"

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace lazyplug {

// For each function, -1 means the current device, and unknown devices raise RuntimeError. Pools are never destroyed.
// There are none if the system refuses addresses for them.

// The pool of a device, or null.
MemoryPool* device_pool(c10::DeviceIndex device);

// The pool that new memory of a device comes from: null also while the flag memory_cache is off.
MemoryPool* allocating_pool(c10::DeviceIndex device);

// The pool of pinned host memory, or null.
MemoryPool* pinned_pool();

// The pool whose memory the address lies in, or null. Takes no lock.
MemoryPool* owning_pool(const void* address);

// Memory of the pool as c10 wants it, labelled as memory of `device`.
c10::DataPtr allocate_block(MemoryPool& pool, size_t nbytes, c10::Device device);

// Frees memory of any pool, on any thread; nothing in a bad fork, where pools may be locked for ever.
void free_block(void* block);

// The part of the host's memory that the device's pool may take, between 0 and 1; it is 1 at first.
void set_memory_fraction(double fraction, c10::DeviceIndex device);
double memory_fraction(c10::DeviceIndex device);

} // namespace lazyplug
