#include "device/memory_pools.h"

#include "common/config.h"
#include "device/runtime.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "test/cpp/device/fake_executor.h"

namespace lazyplug {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t in_use(const MemoryPool& pool) {
  return pool.stats().allocated_bytes[0].current;
}

// Collects what memory profilers of this thread are told.
class Reports final : public c10::MemoryReportingInfoBase {
 public:
  struct Report {
    void* block;
    int64_t nbytes;
    size_t allocated;
    c10::Device device;
  };

  void reportMemoryUsage(void* block, int64_t nbytes, size_t allocated, size_t /*reserved*/, c10::Device device)
      override {
    reports.push_back({block, nbytes, allocated, device});
  }
  bool memoryProfilingEnabled() const override {
    return true;
  }
  std::vector<Report> reports;
};

TEST(MemoryPools, EachDeviceAndPinnedMemoryHaveOne) {
  std::set<MemoryPool*> pools{pinned_pool()};
  for (c10::DeviceIndex i = 0; i < kTestDevices; ++i) {
    pools.insert(device_pool(i));
    EXPECT_EQ(device_pool(i)->device(), lazy_device(i));
  }
  EXPECT_EQ(pools.size(), kTestDevices + 1);
  EXPECT_FALSE(pools.contains(nullptr));
  EXPECT_TRUE(pinned_pool()->device().is_cpu());
}

TEST(MemoryPools, NoIndexMeansTheCurrentDevice) {
  set_device(2);
  EXPECT_EQ(device_pool(-1), device_pool(2));
  set_memory_fraction(0.5, -1);
  set_device(0);
  EXPECT_NEAR(memory_fraction(2), 0.5, 1e-6);
  EXPECT_EQ(memory_fraction(-1), 1.0);
  set_memory_fraction(1.0, 2);
  EXPECT_THROW(device_pool(kTestDevices), c10::Error);
  EXPECT_THROW(memory_fraction(kTestDevices), c10::Error);
}

TEST(MemoryPools, AddressesTellTheirPool) {
  for (MemoryPool* pool : {pinned_pool(), device_pool(0), device_pool(2)}) {
    const c10::DataPtr memory = allocate_block(*pool, 5 * kMiB, lazy_device(0));
    EXPECT_EQ(owning_pool(memory.get()), pool);
    EXPECT_EQ(owning_pool(static_cast<char*>(memory.get()) + 5 * kMiB - 1), pool);
  }
  const int local = 0;
  EXPECT_EQ(owning_pool(&local), nullptr);
  EXPECT_EQ(owning_pool(nullptr), nullptr);
}

TEST(MemoryPools, TheFlagIsForNewMemoryOnly) {
  EXPECT_EQ(allocating_pool(1), device_pool(1));
  c10::DataPtr memory = allocate_block(*device_pool(1), kMiB, lazy_device(1));
  const int64_t before = in_use(*device_pool(1));
  config().memory_cache.set(false);
  EXPECT_EQ(allocating_pool(1), nullptr);
  EXPECT_NE(device_pool(1), nullptr);
  memory.clear();
  config().memory_cache.set(true);
  EXPECT_EQ(in_use(*device_pool(1)), before - kMiB);
}

TEST(MemoryPools, BlocksAreLabelledAsAsked) {
  const c10::DataPtr memory = allocate_block(*device_pool(1), 64, c10::Device(c10::kCPU));
  EXPECT_TRUE(memory.device().is_cpu());
  EXPECT_EQ(memory.get_deleter(), &free_block);
}

TEST(MemoryPools, NothingTakesNoBlock) {
  const auto allocations = device_pool(0)->stats().allocation[0].allocated;
  c10::DataPtr memory = allocate_block(*device_pool(0), 0, lazy_device(0));
  EXPECT_EQ(memory.get(), nullptr);
  EXPECT_EQ(memory.device(), lazy_device(0));
  memory.clear();
  EXPECT_EQ(device_pool(0)->stats().allocation[0].allocated, allocations);
}

TEST(MemoryPools, ProfilersAreToldOfEachBlock) {
  const auto told = std::make_shared<Reports>();
  MemoryPool& pool = *device_pool(1);
  const auto before = static_cast<size_t>(in_use(pool));
  void* block = nullptr;
  {
    const c10::DebugInfoGuard profiling(c10::DebugInfoKind::PROFILER_STATE, told);
    c10::DataPtr memory = allocate_block(pool, kMiB, lazy_device(0));
    block = memory.get();
    allocate_block(pool, 0, lazy_device(0));
  }
  allocate_block(pool, kMiB, lazy_device(0));
  ASSERT_EQ(told->reports.size(), 2);
  const auto& [allocated, freed] = std::tie(told->reports[0], told->reports[1]);
  EXPECT_EQ(allocated.block, block);
  EXPECT_EQ(allocated.nbytes, kMiB);
  EXPECT_EQ(allocated.allocated, before + kMiB);
  EXPECT_EQ(allocated.device, lazy_device(1));
  EXPECT_EQ(freed.block, block);
  EXPECT_EQ(freed.nbytes, -kMiB);
}

TEST(MemoryPools, FractionsLimitTheirPool) {
  set_memory_fraction(0, 1);
  EXPECT_EQ(memory_fraction(1), 0);
  EXPECT_THROW(allocate_block(*device_pool(1), kMiB, lazy_device(1)), c10::OutOfMemoryError);
  EXPECT_NE(allocate_block(*device_pool(0), kMiB, lazy_device(0)).get(), nullptr);
  EXPECT_THROW(set_memory_fraction(-0.1, 1), c10::ValueError);
  EXPECT_THROW(set_memory_fraction(1.1, 1), c10::ValueError);
  EXPECT_EQ(memory_fraction(1), 0);
  set_memory_fraction(1, 1);
  EXPECT_NE(allocate_block(*device_pool(1), kMiB, lazy_device(1)).get(), nullptr);
}

// How many bytes of addresses this process has.
size_t num_addresses() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Runs in a process of its own, which has reserved nothing yet, and gets enough for everything but pools.
[[noreturn]] void check_without_addresses() {
  const rlimit limit{num_addresses() + 256 * kMiB, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  bool right = !device_pool(0) && !allocating_pool(0) && !pinned_pool() && !owning_pool(&limit);
  right = right && memory_fraction(0) == 1.0;
  try {
    set_memory_fraction(0.5, 0);
    right = false;
  } catch (const c10::Error& error) {
    right = right && std::string(error.what()).find("refuses addresses") != std::string::npos;
  }
  _exit(right ? 0 : 1);
}

TEST(MemoryPoolsDeathTest, ThereAreNoneWithoutAddresses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // runs this test alone, in a new process
  EXPECT_EXIT(check_without_addresses(), testing::ExitedWithCode(0), "");
}

} // namespace
} // namespace lazyplug
