// The memory of one device: blocks that are handed out again instead of being returned to the system.
#pragma once

#include "device/host_memory.h"
#include "device/run_set.h"
#include "device/size_class.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace lazyplug {

// What an address range is cut into.
constexpr size_t kGranule = size_t{16} << 10;

// Blocks of up to that size share a slab with others; larger ones are runs of granules of their own.
constexpr size_t kMaxSlabBlock = size_t{64} << 10;

// From here on a block counts as large in statistics.
constexpr size_t kLargeBlock = size_t{1} << 20;

// A block that is in use.
struct LiveBlock {
  void* address;
  size_t nbytes;
  const char* op; // that ran when it was allocated, or null
};

// A block is in use or idle, in the list of its size class. Idle blocks that are no part of a slab may become cached
// runs of granules, which are cut to any size; cached runs become released ones, without memory behind them, when the
// pool is trimmed. So a program that repeats itself is served from the lists, in constant time, and one that does not
// still uses all memory again before it takes more.
//
// Locking: thread-safe. mutex_ guards all members below it, and is held for a few instructions, except while a list is
// empty or the pool is trimmed.
class MemoryPool {
 public:
  // Takes ownership of the range; `name` is what error messages call the pool, `device` what the profiler does.
  MemoryPool(std::string name, c10::Device device, AddressRange range);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least `nbytes` bytes, aligned to kBlockAlignment. Raises OutOfMemoryError, and changes nothing, if that would
  // take the pool over its limit even after trimming.
  void* allocate(size_t nbytes);

  // `block` came from allocate() of this pool.
  void deallocate(void* block);

  // How many bytes the block has, which is at least what was asked for.
  size_t block_size(const void* block) const;

  c10::Device device() const {
    return device_;
  }

  // Returns to the system whatever is not in use.
  void trim();

  // How many bytes the pool may take from the system. Trims it if it holds more.
  void set_limit(size_t nbytes);
  size_t limit() const;

  // How many bytes the pool holds without using them, and how many more may be in use.
  size_t idle_bytes() const;
  size_t headroom() const;

  // How often the last block in use has been freed. Takes no lock.
  uint64_t times_empty() const {
    return times_empty_.load(std::memory_order_relaxed);
  }

  c10::CachingDeviceAllocator::DeviceStats stats() const;
  void reset_accumulated_stats();
  void reset_peak_stats();

  // The largest blocks in use, those of slabs excepted, the largest one first.
  std::vector<LiveBlock> largest_live_blocks(size_t max_count) const;

 private:
  // What is known of a granule that belongs to a block. Of a large block, only the first one counts.
  struct Granule {
    const char* op;
    uint32_t slab; // the first granule of the slab
    SizeClass size_class;
    uint8_t start; // of a large block: where it begins, in units of kBlockAlignment
    bool live;     // likewise: in use
  };

  struct Usage {
    c10::CachingAllocator::Stat blocks;
    c10::CachingAllocator::Stat bytes;
  };

  // Indices of usage_, as in c10's statistics.
  enum UsageKind : uint8_t { kAll, kSmall, kLarge, kNumUsageKinds };

  char* address_of(size_t granule) const {
    return range_.begin + granule * kGranule;
  }
  char* block_at(size_t granule) const {
    return address_of(granule) + granules_[granule].start * kBlockAlignment;
  }
  size_t granule_of(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - range_.begin) / kGranule;
  }

  void refill(SizeClass size_class, size_t requested);
  Run take_run(size_t count, size_t requested);
  Run take_new_run(size_t count, size_t requested);
  void cut_slab(Run run, SizeClass size_class);
  void collect_large_blocks();
  void collect_empty_slabs();
  void collect_slabs_of(SizeClass size_class);
  void give_back(Run run);
  void release_cached();
  void trim_locked();
  void note_allocated(size_t nbytes);
  void note_freed(size_t nbytes);
  std::vector<LiveBlock> largest_live_blocks_locked(size_t max_count) const;
  [[noreturn]] void raise_out_of_memory(size_t requested);
  template <typename Function>
  void for_each_stat(Function function);

  const std::string name_;
  const c10::Device device_;
  const AddressRange range_;
  Granule* const granules_;

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kNumSizeClasses> idle_;
  size_t idle_large_bytes_ = 0; // of blocks that are no part of a slab
  RunSet cached_;
  RunSet released_;
  size_t next_start_ = 0; // of a large block
  size_t frontier_ = 0;   // no granule from here on has ever been in use
  size_t limit_;

  std::array<Usage, kNumUsageKinds> usage_;
  std::atomic<uint64_t> times_empty_{0};
  c10::CachingAllocator::Stat reserved_;
  c10::CachingAllocator::Stat segments_;
  int64_t num_retries_ = 0;
  int64_t num_out_of_memory_ = 0;
  int64_t num_system_allocations_ = 0;
  int64_t num_system_releases_ = 0;
};

} // namespace lazyplug
