#pragma once

#include <cstdint>
#include <vector>

#include "backend/diagnostics/sync_cause.h"

// Which of the user's lines made, or last wrote, the contents of a storage. Known
// only of what was made while the flag `debug` was set, and bounded: the oldest
// are forgotten.
namespace lazyplug {

void note_origin(uint64_t storage_id, const char* location);

// The line, interned, or null. Storages are known by LazyStorageImpl::id().
const char* find_origin(uint64_t storage_id);

// What is known of a trace besides its program: where it ends, and, with the flag
// `debug`, for each leaf the line that made its contents, or null.
struct Provenance {
  Cut cut = {};
  std::vector<const char*> origins = {};
};

} // namespace lazyplug
