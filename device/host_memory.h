// Memory of the host, as the system gives it out.
#pragma once

#include <cstddef>

namespace lazyplug {

// How much memory this process may use, and how much of it nobody uses now: the machine's, or that of the control
// group that the process is in. Read anew at each call.
struct HostMemory {
  size_t free;
  size_t total;
};
HostMemory host_memory();

// Addresses without memory behind them: pages appear when they are first touched. Never given back.
struct AddressRange {
  char* begin = nullptr;
  size_t size = 0;
};

// Reserves `size` bytes, aligned to huge pages, or an empty range if the system refuses.
AddressRange reserve_addresses(size_t size);

// Gives the pages of these bytes back to the system; the addresses stay, and read as zeros.
void release_pages(char* begin, size_t size);

// Asks for huge pages where these bytes, of which none is in use, are first touched, so that large tensors take few
// page faults; unless one takes longer than this, in seconds: what the small pages take in its place. Virtual machines
// that give free blocks of that size back to their host take several times as long.
void prefer_huge_pages(char* begin, size_t size, double seconds_for_small_pages = 1e-3);

} // namespace lazyplug
