// PyTorch's CPU allocator, replaced by one that serves the CPU kernels of the devices from the devices' pools.
#pragma once

#include "device/memory_pool.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace lazyplug {

// The CPU allocator that there was before. Ours forwards to it, except inside a KernelMemoryScope.
c10::Allocator* plain_cpu_allocator();

// Frees what raw_allocate() of this or of the plain allocator, or of a device's, returned.
void free_raw(void* memory);

// A CPU storage, resizable, over memory of the device.
c10::Storage allocate_storage(size_t nbytes, c10::DeviceIndex device);

// While it lives, what this thread gets from PyTorch's CPU allocator is memory of the device: so the results of CPU
// kernels are device memory from the start, and what they need on the way is reused. Threads that a kernel starts are
// not affected. Scopes may be nested. The memory may leave the scope and be freed by any thread.
class KernelMemoryScope {
 public:
  explicit KernelMemoryScope(c10::DeviceIndex device);
  KernelMemoryScope(const KernelMemoryScope&) = delete;
  KernelMemoryScope& operator=(const KernelMemoryScope&) = delete;
  ~KernelMemoryScope();

 private:
  MemoryPool* const outer_pool_;
};

// While it lives, this thread gets no larger block than this from PyTorch's CPU allocator, but a
// c10::OutOfMemoryError. For kernels that are only tried out.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes);
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  ~AllocationLimit();

 private:
  const size_t outer_limit_;
};

} // namespace lazyplug
