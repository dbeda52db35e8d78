#include "device/cpu_allocator.h"

#include "common/fail_point.h"
#include "device/memory_pools.h"

#include <c10/core/CPUAllocator.h>

#include <limits>
#include <utility>

namespace lazyplug {
namespace {

c10::Allocator* plain_allocator = nullptr;

// Where this thread's CPU memory comes from, if not from there.
constinit thread_local MemoryPool* kernel_pool = nullptr;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
constinit thread_local size_t largest_block = kUnlimited;

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        nbytes <= largest_block,
        "a block of ",
        nbytes,
        " bytes is more than is allowed here");
    if (!kernel_pool) {
      return plain_allocator->allocate(nbytes);
    }
    pass(FailPoint::kAllocation);
    return allocate_block(*kernel_pool, nbytes, c10::Device(c10::kCPU));
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return free_raw;
  }
  bool is_simple_data_ptr(const c10::DataPtr& memory) const override {
    return plain_allocator->is_simple_data_ptr(memory);
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    plain_allocator->copy_data(dest, src, count);
  }
};

// At load, because it is not thread-safe; and above the priority of c10's own.
[[maybe_unused]] const bool allocator_is_set = [] {
  constexpr uint8_t kPriority = 1;
  plain_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new CpuAllocator(), kPriority);
  return true;
}();

} // namespace

c10::Allocator* plain_cpu_allocator() {
  return plain_allocator;
}

void free_raw(void* memory) {
  if (owning_pool(memory)) {
    free_block(memory);
  } else {
    plain_allocator->raw_deleter()(memory);
  }
}

c10::Storage allocate_storage(size_t nbytes, c10::DeviceIndex device) {
  const KernelMemoryScope memory(device);
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

KernelMemoryScope::KernelMemoryScope(c10::DeviceIndex device)
    : outer_pool_(std::exchange(kernel_pool, allocating_pool(device))) {}

KernelMemoryScope::~KernelMemoryScope() {
  kernel_pool = outer_pool_;
}

AllocationLimit::AllocationLimit(size_t bytes) : outer_limit_(std::exchange(largest_block, bytes)) {}

AllocationLimit::~AllocationLimit() {
  largest_block = outer_limit_;
}

} // namespace lazyplug
