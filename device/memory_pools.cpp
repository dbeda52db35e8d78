#include "device/memory_pools.h"

#include "common/config.h"
#include "device/fork.h"
#include "device/runtime.h"

#include <algorithm>
#include <bit>
#include <memory>

namespace lazyplug {
namespace {

// One range of addresses for all pools, so that an address tells its pool.
class Pools {
 public:
  // Never destroyed: tensors may outlive static destruction.
  static const Pools& get() {
    static const auto* pools = new Pools();
    return *pools;
  }

  MemoryPool* device_pool(c10::DeviceIndex device) const {
    return pools_.empty() ? nullptr : pools_[device + 1].get();
  }
  MemoryPool* pinned_pool() const {
    return pools_.empty() ? nullptr : pools_.front().get();
  }
  MemoryPool* owner(const void* address) const {
    const auto offset = static_cast<size_t>(static_cast<const char*>(address) - range_.begin);
    return offset < range_.size ? pools_[offset >> pool_bits_].get() : nullptr;
  }

 private:
  Pools() {
    const c10::DeviceIndex count = device_count();
    reserve(static_cast<size_t>(count) + 1);
    if (range_.begin) {
      add("pinned host memory", c10::Device(c10::kCPU));
      for (c10::DeviceIndex i = 0; i < count; ++i) {
        add(c10::str(lazy_device(i)), lazy_device(i));
      }
    }
  }

  // Pools of twice the memory there is, so that fragments do not matter; smaller ones if the system limits addresses.
  void reserve(size_t count) {
    constexpr int kMinBits = 28;
    constexpr int kMaxBits = 40;
    int bits = std::min(static_cast<int>(std::bit_width(host_memory().total)) + 1, kMaxBits);
    for (; bits >= kMinBits && !range_.begin; --bits) {
      pool_bits_ = bits;
      range_ = reserve_addresses(count << bits);
    }
  }

  void add(std::string name, c10::Device device) {
    const size_t size = size_t{1} << pool_bits_;
    const AddressRange range{range_.begin + pools_.size() * size, size};
    pools_.push_back(std::make_unique<MemoryPool>(std::move(name), device, range));
  }

  int pool_bits_ = 0;
  AddressRange range_;
  std::vector<std::unique_ptr<MemoryPool>> pools_; // pinned memory, then the devices
};

void report_to_profiler(void* block, bool allocated, const MemoryPool& pool) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) {
    return;
  }
  const auto nbytes = static_cast<int64_t>(pool.block_size(block));
  const auto stats = pool.stats();
  c10::reportMemoryUsageToProfiler(
      block,
      allocated ? nbytes : -nbytes,
      stats.allocated_bytes[0].current,
      stats.reserved_bytes[0].current,
      pool.device());
}

} // namespace

MemoryPool* device_pool(c10::DeviceIndex device) {
  return Pools::get().device_pool(resolve_device_index(device));
}

MemoryPool* allocating_pool(c10::DeviceIndex device) {
  return config().memory_cache.get() ? device_pool(device) : nullptr;
}

MemoryPool* pinned_pool() {
  return Pools::get().pinned_pool();
}

MemoryPool* owning_pool(const void* address) {
  return Pools::get().owner(address);
}

c10::DataPtr allocate_block(MemoryPool& pool, size_t nbytes, c10::Device device) {
  if (nbytes == 0) {
    return {nullptr, nullptr, free_block, device};
  }
  void* block = pool.allocate(nbytes);
  report_to_profiler(block, /*allocated=*/true, pool);
  return {block, block, free_block, device};
}

void free_block(void* block) {
  if (block && !is_in_bad_fork()) {
    MemoryPool& pool = *owning_pool(block);
    report_to_profiler(block, /*allocated=*/false, pool);
    pool.deallocate(block);
  }
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(0 <= fraction && fraction <= 1, "Invalid fraction value: ", fraction, ". Allowed range: 0~1");
  ensure_initialized();
  MemoryPool* pool = device_pool(device);
  TORCH_CHECK(pool, "the system refuses addresses for device memory, so that it is not counted and cannot be limited");
  pool->set_limit(static_cast<size_t>(fraction * static_cast<double>(host_memory().total)));
}

double memory_fraction(c10::DeviceIndex device) {
  ensure_initialized();
  const MemoryPool* pool = device_pool(device);
  return pool ? static_cast<double>(pool->limit()) / static_cast<double>(host_memory().total) : 1.0;
}

} // namespace lazyplug
