#include "device/allocator.h"

#include "device/runtime.h"

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

} // namespace
} // namespace lazyplug
