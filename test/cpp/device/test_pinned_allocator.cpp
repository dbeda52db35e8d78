#include "device/pinned_allocator.h"

#include "device/allocator.h"
#include "device/fork.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(PinnedAllocator, IsRegistered) {
  EXPECT_EQ(at::getHostAllocator(at::kPrivateUse1), pinned_allocator());
}

TEST(PinnedAllocator, MarksItsMemory) {
  const c10::DataPtr memory = pinned_allocator()->allocate(100);
  EXPECT_TRUE(memory.device().is_cpu());
  EXPECT_TRUE(is_pinned(memory.get()));
  EXPECT_TRUE(is_pinned(static_cast<char*>(memory.get()) + 99));
  const int local = 0;
  EXPECT_FALSE(is_pinned(&local));
  EXPECT_FALSE(is_pinned(nullptr));
  EXPECT_FALSE(is_pinned(device_allocator()->allocate(100).get()));
}

TEST(PinnedAllocator, Figures) {
  pinned_allocator()->empty_cache();
  pinned_allocator()->reset_accumulated_stats();
  const auto before = pinned_allocator()->get_stats();
  const c10::DataPtr memory = pinned_allocator()->allocate(1 << 20);
  const auto after = pinned_allocator()->get_stats();
  EXPECT_EQ(after.active_bytes.current - before.active_bytes.current, 1 << 20);
  EXPECT_EQ(after.num_host_alloc, 1);
}

} // namespace
} // namespace lazyplug
