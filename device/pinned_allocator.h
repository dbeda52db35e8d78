// Pinned host memory. The devices compute in host memory, so that nothing but a mark makes it special.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace lazyplug {

// Registered with ATen for the lazy device type. Thread-safe.
at::HostAllocator* pinned_allocator();

// Whether the address lies in memory of that allocator.
bool is_pinned(const void* address);

} // namespace lazyplug
