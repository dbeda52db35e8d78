#include "device/allocator.h"

#include "common/config.h"
#include "device/memory_pools.h"
#include "device/runtime.h"
#include "test/cpp/device/fake_executor.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lazyplug {
namespace {

TEST(Allocator, IsRegistered) {
  EXPECT_EQ(c10::GetAllocator(kLazyDevice), device_allocator());
}

TEST(Allocator, MemoryBelongsToTheCurrentDevice) {
  set_device(1);
  const c10::DataPtr memory = device_allocator()->allocate(64);
  set_device(0);
  EXPECT_EQ(memory.device(), lazy_device(1));
  std::memset(memory.get(), 1, 64);
}

TEST(Allocator, EmptyMemoryHasADeviceToo) {
  EXPECT_EQ(device_allocator()->allocate(0).device(), lazy_device(0));
}

TEST(Allocator, RawAllocation) {
  void* memory = device_allocator()->raw_allocate(64);
  std::memset(memory, 1, 64);
  device_allocator()->raw_deallocate(memory);
}

TEST(Allocator, CloneCopiesTheContent) {
  const char text[] = "lazy";
  c10::DataPtr memory = device_allocator()->allocate(sizeof(text));
  std::memcpy(memory.get(), text, sizeof(text));
  const c10::DataPtr clone = device_allocator()->clone(memory.get(), sizeof(text));
  EXPECT_NE(clone.get(), memory.get());
  EXPECT_STREQ(static_cast<const char*>(clone.get()), text);
}

TEST(Allocator, EachDeviceHasAPool) {
  set_device(1);
  const c10::DataPtr memory = device_allocator()->allocate(64);
  set_device(0);
  EXPECT_EQ(owning_pool(memory.get()), device_pool(1));
  EXPECT_NE(device_pool(0), device_pool(1));
}

TEST(Allocator, TheFlagSwitchesThePoolOff) {
  config().memory_cache.set(false);
  const c10::DataPtr memory = device_allocator()->allocate(64);
  config().memory_cache.set(true);
  EXPECT_EQ(memory.device(), lazy_device(0));
  EXPECT_EQ(owning_pool(memory.get()), nullptr);
}

TEST(Allocator, EmptyCacheTrimsEveryDeviceAndTellsTheExecutor) {
  const FakeExecutor executor;
  set_device(1);
  device_allocator()->allocate(4 << 20).clear();
  set_device(0);
  EXPECT_GT(device_pool(1)->idle_bytes(), 0);
  device_allocator()->emptyCache();
  EXPECT_EQ(device_pool(1)->idle_bytes(), 0);
  EXPECT_EQ(executor.emptied, std::vector<c10::DeviceIndex>({0, 1, 2}));
}

TEST(Allocator, FiguresAreThoseOfTheDevice) {
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(kLazyDevice);
  const auto before = allocator->getDeviceStats(0).allocated_bytes[0].current;
  const c10::DataPtr memory = allocator->allocate(1 << 20);
  EXPECT_EQ(allocator->getDeviceStats(0).allocated_bytes[0].current, before + (1 << 20));
  allocator->resetPeakStats(0);
  allocator->resetAccumulatedStats(0);
  EXPECT_EQ(allocator->getDeviceStats(0).allocated_bytes[0].allocated, 0);
  EXPECT_THROW(allocator->getDeviceStats(100), c10::Error);
}

TEST(Allocator, MemoryInfoKnowsTheLimit) {
  const auto [free, total] = device_allocator()->getMemoryInfo(0);
  EXPECT_LE(free, total);
  set_memory_fraction(0.001, 0);
  EXPECT_LE(device_allocator()->getMemoryInfo(0).first, total / 999);
  EXPECT_NEAR(memory_fraction(0), 0.001, 1e-6);
  set_memory_fraction(1.0, 0);
  EXPECT_THROW(set_memory_fraction(2.0, 0), c10::ValueError);
}

} // namespace
} // namespace lazyplug
