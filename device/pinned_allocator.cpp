#include "device/pinned_allocator.h"

#include "device/cpu_allocator.h"
#include "device/fork.h"
#include "device/memory_pools.h"

namespace lazyplug {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    ensure_initialized();
    MemoryPool* pool = pinned_pool();
    return pool ? allocate_block(*pool, nbytes, c10::Device(c10::kCPU)) : plain_cpu_allocator()->allocate(nbytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return free_raw;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  // Nothing to do: copies from host memory are made when they are recorded.
  bool record_event(void* /*address*/, void* /*context*/, c10::Stream /*stream*/) override {
    return true;
  }

  void empty_cache() override {
    if (MemoryPool* pool = pinned_pool()) {
      pool->trim();
    }
  }
  at::HostStats get_stats() override {
    at::HostStats result;
    if (const MemoryPool* pool = pinned_pool()) {
      const auto stats = pool->stats();
      result.active_requests = stats.active[0];
      result.active_bytes = stats.active_bytes[0];
      result.allocations = stats.segment[0];
      result.allocated_bytes = stats.reserved_bytes[0];
      result.num_host_alloc = stats.num_device_alloc;
      result.num_host_free = stats.num_device_free;
    }
    return result;
  }
  void reset_accumulated_stats() override {
    if (MemoryPool* pool = pinned_pool()) {
      pool->reset_accumulated_stats();
    }
  }
  void reset_peak_stats() override {
    if (MemoryPool* pool = pinned_pool()) {
      pool->reset_peak_stats();
    }
  }
};

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, pinned_allocator())

} // namespace

at::HostAllocator* pinned_allocator() {
  static auto* allocator = new PinnedAllocator();
  return allocator;
}

bool is_pinned(const void* address) {
  // Before initialisation nothing is pinned, and asking is no use of the device.
  return is_initialized() && owning_pool(address) && owning_pool(address) == pinned_pool();
}

} // namespace lazyplug
