#include "device/allocator.h"

#include "device/callbacks.h"
#include "device/cpu_allocator.h"
#include "device/fork.h"
#include "device/memory_pools.h"
#include "device/runtime.h"

#include <algorithm>

namespace lazyplug {
namespace {

// The pool, for calls that count as use of the device.
MemoryPool* initialized_pool(c10::DeviceIndex device) {
  ensure_initialized();
  return device_pool(device);
}

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    ensure_initialized();
    const c10::Device device = lazy_device(current_device());
    if (MemoryPool* pool = allocating_pool(device.index())) {
      return allocate_block(*pool, nbytes, device);
    }
    c10::DataPtr memory = plain_cpu_allocator()->allocate(nbytes);
    memory.unsafe_set_device(device);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return free_raw;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  bool initialized() override {
    return is_initialized();
  }
  void emptyCache(c10::MempoolId_t /*mempool*/) override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      MemoryPool* pool = initialized_pool(device);
      device_callbacks().empty_cache(device);
      if (pool) {
        pool->trim();
      }
    }
  }
  // Nothing to do: whatever is recorded holds on to the memory that it reads.
  void recordStream(const c10::DataPtr& /*memory*/, c10::Stream /*stream*/) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryPool* pool = initialized_pool(device);
    return pool ? pool->stats() : c10::CachingDeviceAllocator::DeviceStats();
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (MemoryPool* pool = initialized_pool(device)) {
      pool->reset_accumulated_stats();
    }
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (MemoryPool* pool = initialized_pool(device)) {
      pool->reset_peak_stats();
    }
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const MemoryPool* pool = initialized_pool(device);
    const HostMemory host = host_memory();
    return {pool ? std::min(host.free + pool->idle_bytes(), pool->headroom()) : host.free, host.total};
  }
};

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, device_allocator())

} // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* allocator = new CachingAllocator();
  return allocator;
}

} // namespace lazyplug
