#include "device/hooks.h"

#include "device/fork.h"
#include "device/generator.h"
#include "device/runtime.h"
#include "test/cpp/device/fake_executor.h"

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

// What ATen itself would use.
const at::PrivateUse1HooksInterface& hooks() {
  return at::detail::getPrivateUse1Hooks();
}

TEST(Hooks, AreRegistered) {
  EXPECT_TRUE(at::isPrivateUse1HooksRegistered());
  EXPECT_TRUE(hooks().isBuilt());
  EXPECT_TRUE(hooks().isAvailable());
  EXPECT_EQ(hooks().deviceCount(), kTestDevices);
}

TEST(Hooks, InitOpensEveryDevice) {
  at::globalContext().lazyInitDevice(kLazyDevice);
  hooks().init();
  EXPECT_TRUE(is_initialized());
  EXPECT_TRUE(hooks().hasPrimaryContext(0));
  EXPECT_FALSE(hooks().hasPrimaryContext(kTestDevices));
  EXPECT_FALSE(hooks().hasPrimaryContext(-1));
}

TEST(Hooks, CurrentDevice) {
  hooks().setCurrentDevice(1);
  EXPECT_EQ(hooks().getCurrentDevice(), 1);
  EXPECT_EQ(hooks().exchangeDevice(2), 1);
  EXPECT_EQ(hooks().maybeExchangeDevice(-1), 2);
  EXPECT_EQ(hooks().maybeExchangeDevice(0), 2);
}

TEST(Hooks, Generators) {
  EXPECT_EQ(at::globalContext().defaultGenerator(lazy_device(1)), default_generator(1));
  const at::Generator mine = hooks().getNewGenerator(-1);
  EXPECT_EQ(mine.device(), lazy_device(0));
  EXPECT_NE(mine, default_generator(0));
}

TEST(Hooks, HostMemory) {
  const c10::DataPtr memory = hooks().getPinnedMemoryAllocator()->allocate(8);
  EXPECT_TRUE(memory.device().is_cpu());
  EXPECT_TRUE(hooks().isPinnedPtr(memory.get()));
  EXPECT_EQ(hooks().getDeviceFromPtr(memory.get()), lazy_device(0));
}

TEST(Hooks, ResizeReachesTheExecutor) {
  FakeExecutor executor;
  const c10::Storage storage(c10::Storage::use_byte_size_t(), 8, c10::GetCPUAllocator(), /*resizable=*/true);
  hooks().resizePrivateUse1Bytes(storage, 32);
  ASSERT_EQ(executor.resized.size(), 1);
  EXPECT_EQ(executor.resized[0].first, storage.unsafeGetStorageImpl());
  EXPECT_EQ(executor.resized[0].second, 32);
}

} // namespace
} // namespace lazyplug
