#include "device/memory_pool.h"

#include "common/running_op.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

namespace lazyplug {
namespace {

// A slab has room for several blocks, and for many small ones.
constexpr size_t kMinSlab = size_t{64} << 10;
constexpr size_t kMinBlocksPerSlab = 8;

// How many blocks an out-of-memory error lists.
constexpr size_t kBlocksInErrors = 5;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

size_t granules_for(size_t nbytes) {
  return (nbytes + kGranule - 1) / kGranule;
}

// Where large blocks begin in their first granule, by turns: quarters of a page. Tensors of one size that are read and
// written together would have the same places of all pages otherwise, and with them share the sets of caches. A few
// lines would not do: a processor tells by the last twelve bits of addresses what a load may have to wait for, and a
// result that is written to just before where the next operands are read, of other pages, takes up to a half longer.
constexpr size_t kNumStarts = 4;
constexpr size_t kStartBytes = 1024;
static_assert(kStartBytes % kBlockAlignment == 0);

size_t granules_for_large(SizeClass size_class) {
  return granules_for(class_bytes(size_class) + (kNumStarts - 1) * kStartBytes);
}

size_t bytes_of_large(SizeClass size_class) {
  return granules_for_large(size_class) * kGranule;
}

size_t slab_bytes(SizeClass size_class) {
  return round_up(std::max(kMinSlab, kMinBlocksPerSlab * class_bytes(size_class)), kGranule);
}

bool is_slab_class(SizeClass size_class) {
  return class_bytes(size_class) <= kMaxSlabBlock;
}

std::string to_text(size_t nbytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  auto amount = static_cast<double>(nbytes);
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    amount /= 1024;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", amount, kUnits[unit]);
  return text.data();
}

std::string describe(const std::vector<LiveBlock>& blocks) {
  std::string text;
  for (const LiveBlock& block : blocks) {
    text += text.empty() ? " The largest live tensors: " : ", ";
    text += to_text(block.nbytes) + (block.op ? std::string(" by ") + block.op : "");
  }
  return text.empty() ? text : text + ".";
}

template <typename T>
T* reserve_table(size_t count) {
  // Zeros, of which only what is used takes memory.
  const AddressRange range = reserve_addresses(count * sizeof(T));
  TORCH_CHECK(range.begin, "cannot reserve addresses for ", count, " granules of device memory");
  return reinterpret_cast<T*>(range.begin);
}

} // namespace

MemoryPool::MemoryPool(std::string name, c10::Device device, AddressRange range)
    : name_(std::move(name)),
      device_(device),
      range_(range),
      granules_(reserve_table<Granule>(range.size / kGranule)),
      limit_(host_memory().total) {
  released_.insert({0, range.size / kGranule});
}

void* MemoryPool::allocate(size_t nbytes) {
  const SizeClass size_class = size_class_of(nbytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (nbytes > range_.size) {
    raise_out_of_memory(nbytes);
  }
  auto& blocks = idle_[size_class];
  if (blocks.empty()) {
    refill(size_class, nbytes);
  }
  void* block = blocks.back();
  blocks.pop_back();
  const size_t size = class_bytes(size_class);
  if (size > kMaxSlabBlock) {
    idle_large_bytes_ -= bytes_of_large(size_class);
    Granule& granule = granules_[granule_of(block)];
    granule.op = running_op();
    granule.live = true;
  }
  note_allocated(size);
  return block;
}

void MemoryPool::deallocate(void* block) {
  Granule& granule = granules_[granule_of(block)];
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t size = class_bytes(granule.size_class);
  if (size > kMaxSlabBlock) {
    TORCH_INTERNAL_ASSERT(granule.live, "device memory at ", block, " is freed twice");
    granule.live = false;
    idle_large_bytes_ += bytes_of_large(granule.size_class);
  }
  idle_[granule.size_class].push_back(block);
  note_freed(size);
}

size_t MemoryPool::block_size(const void* block) const {
  return class_bytes(granules_[granule_of(block)].size_class);
}

// ---- where blocks come from ----

void MemoryPool::refill(SizeClass size_class, size_t requested) {
  if (is_slab_class(size_class)) {
    cut_slab(take_run(slab_bytes(size_class) / kGranule, requested), size_class);
  } else {
    const Run run = take_run(granules_for_large(size_class), requested);
    const auto start = static_cast<uint8_t>(next_start_++ % kNumStarts * (kStartBytes / kBlockAlignment));
    granules_[run.first] = {nullptr, static_cast<uint32_t>(run.first), size_class, start, /*live=*/false};
    idle_[size_class].push_back(block_at(run.first));
    idle_large_bytes_ += bytes_of_large(size_class);
  }
  segments_.increase(1);
}

void MemoryPool::cut_slab(Run run, SizeClass size_class) {
  for (size_t i = 0; i < run.count; ++i) {
    granules_[run.first + i] = {nullptr, static_cast<uint32_t>(run.first), size_class, /*start=*/0, /*live=*/false};
  }
  const size_t size = class_bytes(size_class);
  // The lowest address is taken first.
  for (size_t i = run.count * kGranule / size; i-- > 0;) {
    idle_[size_class].push_back(address_of(run.first) + i * size);
  }
}

Run MemoryPool::take_run(size_t count, size_t requested) {
  auto run = cached_.take(count);
  if (!run && (idle_large_bytes_ + cached_.total() * kGranule) >= count * kGranule) {
    collect_large_blocks();
    run = cached_.take(count);
  }
  return run ? *run : take_new_run(count, requested);
}

Run MemoryPool::take_new_run(size_t count, size_t requested) {
  const size_t nbytes = count * kGranule;
  const auto fits = [&] { return static_cast<size_t>(reserved_.current) + nbytes <= limit_; };
  auto run = fits() ? released_.take(count) : std::nullopt;
  if (!run) {
    ++num_retries_;
    trim_locked();
    run = fits() ? released_.take(count) : std::nullopt;
  }
  if (!run) {
    raise_out_of_memory(requested);
  }
  frontier_ = std::max(frontier_, run->first + run->count);
  ++num_system_allocations_;
  reserved_.increase(nbytes);
  prefer_huge_pages(address_of(run->first), nbytes);
  return *run;
}

void MemoryPool::raise_out_of_memory(size_t requested) {
  ++num_out_of_memory_;
  C10_THROW_ERROR(
      OutOfMemoryError,
      c10::str(
          "LAZY out of memory. Tried to allocate ",
          to_text(requested),
          " on ",
          name_,
          ", which may hold ",
          to_text(limit_),
          " and has ",
          to_text(static_cast<size_t>(usage_[kAll].bytes.current)),
          " in use.",
          describe(largest_live_blocks_locked(kBlocksInErrors))));
}

// ---- where they go ----

void MemoryPool::collect_large_blocks() {
  for (size_t size_class = size_class_of(kMaxSlabBlock) + 1; size_class < kNumSizeClasses; ++size_class) {
    for (void* block : idle_[size_class]) {
      give_back({granule_of(block), granules_for_large(static_cast<SizeClass>(size_class))});
    }
    idle_[size_class].clear();
  }
  idle_large_bytes_ = 0;
}

void MemoryPool::collect_empty_slabs() {
  for (size_t size_class = 0; size_class <= size_class_of(kMaxSlabBlock); ++size_class) {
    collect_slabs_of(static_cast<SizeClass>(size_class));
  }
}

void MemoryPool::collect_slabs_of(SizeClass size_class) {
  auto& blocks = idle_[size_class];
  std::unordered_map<uint32_t, size_t> idle_blocks;
  for (void* block : blocks) {
    ++idle_blocks[granules_[granule_of(block)].slab];
  }
  const size_t capacity = slab_bytes(size_class) / class_bytes(size_class);
  std::erase_if(blocks, [&](void* block) { return idle_blocks.at(granules_[granule_of(block)].slab) == capacity; });
  for (const auto& [slab, count] : idle_blocks) {
    if (count == capacity) {
      give_back({slab, slab_bytes(size_class) / kGranule});
    }
  }
}

void MemoryPool::give_back(Run run) {
  cached_.insert(run);
  segments_.decrease(1);
}

void MemoryPool::release_cached() {
  for (const auto& [first, count] : cached_.runs()) {
    release_pages(address_of(first), count * kGranule);
    reserved_.decrease(count * kGranule);
    released_.insert({first, count});
    ++num_system_releases_;
  }
  cached_.clear();
}

void MemoryPool::trim_locked() {
  collect_large_blocks();
  collect_empty_slabs();
  release_cached();
}

void MemoryPool::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_locked();
}

void MemoryPool::set_limit(size_t nbytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  limit_ = nbytes;
  if (static_cast<size_t>(reserved_.current) > nbytes) {
    trim_locked();
  }
}

size_t MemoryPool::limit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return limit_;
}

size_t MemoryPool::idle_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(reserved_.current - usage_[kAll].bytes.current);
}

size_t MemoryPool::headroom() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return limit_ - std::min(limit_, static_cast<size_t>(usage_[kAll].bytes.current));
}

// ---- figures ----

void MemoryPool::note_allocated(size_t nbytes) {
  for (Usage* usage : {&usage_[kAll], &usage_[nbytes < kLargeBlock ? kSmall : kLarge]}) {
    usage->blocks.increase(1);
    usage->bytes.increase(nbytes);
  }
}

void MemoryPool::note_freed(size_t nbytes) {
  for (Usage* usage : {&usage_[kAll], &usage_[nbytes < kLargeBlock ? kSmall : kLarge]}) {
    usage->blocks.decrease(1);
    usage->bytes.decrease(nbytes);
  }
  if (usage_[kAll].blocks.current == 0) {
    times_empty_.fetch_add(1, std::memory_order_relaxed);
  }
}

c10::CachingDeviceAllocator::DeviceStats MemoryPool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  c10::CachingDeviceAllocator::DeviceStats stats;
  for (size_t kind = 0; kind < usage_.size(); ++kind) {
    stats.allocation[kind] = stats.active[kind] = usage_[kind].blocks;
    stats.allocated_bytes[kind] = stats.active_bytes[kind] = usage_[kind].bytes;
  }
  stats.reserved_bytes[kAll] = reserved_;
  stats.segment[kAll] = segments_;
  stats.num_alloc_retries = num_retries_;
  stats.num_ooms = num_out_of_memory_;
  stats.num_device_alloc = num_system_allocations_;
  stats.num_device_free = num_system_releases_;
  return stats;
}

template <typename Function>
void MemoryPool::for_each_stat(Function function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Usage& usage : usage_) {
    function(usage.blocks);
    function(usage.bytes);
  }
  function(reserved_);
  function(segments_);
}

void MemoryPool::reset_accumulated_stats() {
  for_each_stat([](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  num_retries_ = num_out_of_memory_ = num_system_allocations_ = num_system_releases_ = 0;
}

void MemoryPool::reset_peak_stats() {
  for_each_stat([](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
}

std::vector<LiveBlock> MemoryPool::largest_live_blocks(size_t max_count) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return largest_live_blocks_locked(max_count);
}

std::vector<LiveBlock> MemoryPool::largest_live_blocks_locked(size_t max_count) const {
  std::vector<LiveBlock> blocks;
  for (size_t i = 0; i < frontier_; ++i) {
    if (granules_[i].live) {
      blocks.push_back({block_at(i), class_bytes(granules_[i].size_class), granules_[i].op});
    }
  }
  const size_t count = std::min(max_count, blocks.size());
  const auto larger = [](const LiveBlock& a, const LiveBlock& b) { return a.nbytes > b.nbytes; };
  std::partial_sort(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(count), blocks.end(), larger);
  blocks.resize(count);
  return blocks;
}

} // namespace lazyplug
