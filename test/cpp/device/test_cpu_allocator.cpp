#include "device/cpu_allocator.h"

#include "common/config.h"
#include "device/memory_pools.h"
#include "device/runtime.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace lazyplug {
namespace {

MemoryPool* pool_of_cpu_memory() {
  return owning_pool(c10::GetCPUAllocator()->allocate(64).get());
}

TEST(CpuAllocator, ForwardsOutsideAScope) {
  const c10::DataPtr memory = c10::GetCPUAllocator()->allocate(64);
  EXPECT_EQ(owning_pool(memory.get()), nullptr);
  EXPECT_EQ(memory.get_deleter(), plain_cpu_allocator()->raw_deleter());
}

TEST(CpuAllocator, AScopeTakesMemoryOfItsDevice) {
  const KernelMemoryScope scope(1);
  const c10::DataPtr memory = c10::GetCPUAllocator()->allocate(64);
  EXPECT_EQ(owning_pool(memory.get()), device_pool(1));
  EXPECT_TRUE(memory.device().is_cpu());
  EXPECT_TRUE(c10::GetCPUAllocator()->is_simple_data_ptr(memory));
}

TEST(CpuAllocator, NothingNeedsNoMemory) {
  const KernelMemoryScope scope(0);
  EXPECT_EQ(c10::GetCPUAllocator()->allocate(0).get(), nullptr);
}

TEST(CpuAllocator, ScopesNest) {
  const KernelMemoryScope outer(0);
  {
    const KernelMemoryScope inner(1);
    EXPECT_EQ(pool_of_cpu_memory(), device_pool(1));
  }
  EXPECT_EQ(pool_of_cpu_memory(), device_pool(0));
}

TEST(CpuAllocator, AScopeIsOfOneThread) {
  const KernelMemoryScope scope(0);
  MemoryPool* elsewhere = device_pool(0);
  std::thread([&] { elsewhere = pool_of_cpu_memory(); }).join();
  EXPECT_EQ(elsewhere, nullptr);
}

TEST(CpuAllocator, MemoryLeavesItsScope) {
  c10::DataPtr memory;
  {
    const KernelMemoryScope scope(0);
    memory = c10::GetCPUAllocator()->allocate(5000);
  }
  const auto before = device_pool(0)->stats().allocation[0].current;
  std::thread([&] { memory.clear(); }).join();
  EXPECT_EQ(device_pool(0)->stats().allocation[0].current, before - 1);
}

TEST(CpuAllocator, RawMemoryIsFreedWhateverTheScope) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* plain = allocator->raw_allocate(64);
  std::optional<KernelMemoryScope> scope(std::in_place, 0);
  void* ours = allocator->raw_allocate(64);
  allocator->raw_deallocate(plain);
  scope.reset();
  allocator->raw_deallocate(ours);
}

TEST(CpuAllocator, TheFlagSwitchesItOff) {
  config().memory_cache.set(false);
  {
    const KernelMemoryScope scope(0);
    EXPECT_EQ(pool_of_cpu_memory(), nullptr);
  }
  config().memory_cache.set(true);
}

TEST(AllocationLimit, RefusesLargerBlocksWhileItLives) {
  {
    const AllocationLimit limit(1000);
    EXPECT_EQ(at::empty({1000}, at::kByte).nbytes(), 1000);
    EXPECT_THROW(at::empty({1001}, at::kByte), c10::OutOfMemoryError);
  }
  EXPECT_EQ(at::empty({1001}, at::kByte).nbytes(), 1001);
}

} // namespace
} // namespace lazyplug
