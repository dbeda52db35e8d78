#include "device/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace lazyplug {
namespace {

constexpr size_t kMiBOfHost = 1 << 20;
constexpr size_t kHugePage = 2 * kMiBOfHost;

bool is_resident(char* page) {
  std::array<unsigned char, 1> resident{};
  EXPECT_EQ(mincore(page, 1, resident.data()), 0);
  return (resident[0] & 1) != 0;
}

// Whether the kernel has been asked for huge pages at this address: the flag "hg" of its mapping.
bool prefers_huge_pages(const char* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_inside = begin <= wanted && wanted < end;
    } else if (is_inside && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(HostMemory, IsThatOfTheMachineOrLess) {
  const HostMemory memory = host_memory();
  const size_t machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_LE(memory.total, machine);
}

TEST(HostMemory, AddressesTakeNoMemoryUntilTheyAreTouched) {
  const AddressRange range = reserve_addresses(size_t{1} << 36);
  ASSERT_NE(range.begin, nullptr);
  EXPECT_EQ(range.size, size_t{1} << 36);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(range.begin) % kHugePage, 0);
  char* last = range.begin + range.size - 4096;
  EXPECT_FALSE(is_resident(last));
  *last = 1;
  EXPECT_TRUE(is_resident(last));
  release_pages(last, 4096);
}

TEST(HostMemory, RefusedAddressesAreAnEmptyRange) {
  const AddressRange range = reserve_addresses(std::numeric_limits<size_t>::max() / 2);
  EXPECT_EQ(range.begin, nullptr);
  EXPECT_EQ(range.size, 0);
}

TEST(HostMemory, ReleasedPagesAreZerosAndTheirNeighboursStay) {
  const AddressRange range = reserve_addresses(3 * kMiBOfHost);
  std::memset(range.begin, 7, range.size);
  release_pages(range.begin + kMiBOfHost, kMiBOfHost);
  EXPECT_FALSE(is_resident(range.begin + kMiBOfHost));
  EXPECT_EQ(range.begin[kMiBOfHost - 1], 7);
  EXPECT_EQ(range.begin[kMiBOfHost], 0);
  EXPECT_EQ(range.begin[2 * kMiBOfHost - 1], 0);
  EXPECT_EQ(range.begin[2 * kMiBOfHost], 7);
  release_pages(range.begin, range.size);
}

TEST(HostMemory, OnlyLargeBlocksAskForHugePages) {
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0) {
    GTEST_SKIP() << "this kernel has no transparent huge pages to ask for";
  }
  constexpr double kHoweverLong = std::numeric_limits<double>::infinity();
  const AddressRange range = reserve_addresses(16 * kHugePage);
  prefer_huge_pages(range.begin, kHugePage, kHoweverLong);
  EXPECT_FALSE(prefers_huge_pages(range.begin));
  prefer_huge_pages(range.begin + 4 * kHugePage, 2 * kHugePage, kHoweverLong);
  EXPECT_TRUE(prefers_huge_pages(range.begin + 4 * kHugePage));
  EXPECT_FALSE(prefers_huge_pages(range.begin));
}

TEST(HostMemory, HugePagesThatTakeTooLongAreNotAskedFor) {
  const AddressRange range = reserve_addresses(16 * kHugePage);
  prefer_huge_pages(range.begin, 8 * kHugePage, /*seconds_for_small_pages=*/0);
  EXPECT_FALSE(prefers_huge_pages(range.begin));
}

} // namespace
} // namespace lazyplug
