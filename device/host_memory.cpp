#include "device/host_memory.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace lazyplug {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Touches the first ones of a large range, which are touched anyway.
bool are_huge_pages_quicker(char* begin, size_t size, double seconds) {
  constexpr size_t kProbed = 16;
  const auto first = (reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) / kHugePage * kHugePage;
  for (size_t i = 0; i < size / kHugePage / kProbed + 1; ++i) {
    const double before = thread_seconds();
    *reinterpret_cast<volatile char*>(first + i * kHugePage) = 0;
    if (thread_seconds() - before > seconds) {
      return false;
    }
  }
  return true;
}

// The number in a file of one, or `otherwise` if there is none, as where a limit reads "max".
size_t read_number(const char* path, size_t otherwise) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : otherwise;
}

// What the system could give to new programs without swapping.
size_t available_memory(size_t otherwise) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") {
      return kilobytes * 1024;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return otherwise;
}

size_t group_limit() {
  return std::min(
      read_number("/sys/fs/cgroup/memory.max", kNoLimit),
      read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kNoLimit));
}

size_t group_usage() {
  return std::max(
      read_number("/sys/fs/cgroup/memory.current", 0),
      read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0));
}

} // namespace

HostMemory host_memory() {
  const size_t machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t total = std::min(machine, group_limit());
  const size_t group_free = total < machine ? total - std::min(total, group_usage()) : total;
  return {std::min(available_memory(machine), group_free), total};
}

AddressRange reserve_addresses(size_t size) {
  void* mapped = mmap(
      nullptr,
      size + kHugePage,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      /*fd=*/-1,
      /*offset=*/0);
  if (mapped == MAP_FAILED) {
    return {};
  }
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  return {reinterpret_cast<char*>((address + kHugePage - 1) / kHugePage * kHugePage), size};
}

void release_pages(char* begin, size_t size) {
  madvise(begin, size, MADV_DONTNEED);
}

void prefer_huge_pages(char* begin, size_t size, double seconds_for_small_pages) {
  if (size >= 2 * kHugePage) {
    madvise(begin, size, MADV_HUGEPAGE);
    if (!are_huge_pages_quicker(begin, size, seconds_for_small_pages)) {
      madvise(begin, size, MADV_NOHUGEPAGE);
    }
  }
}

} // namespace lazyplug
