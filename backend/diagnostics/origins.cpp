#include "backend/diagnostics/origins.h"

#include "common/fork_safe_mutex.h"
#include "common/lru_cache.h"

namespace lazyplug {
namespace {

constexpr size_t kMaxOrigins = 100000;

// Never destroyed: tensors may outlive static destruction.
LruCache<uint64_t, const char*>& origins() {
  static auto* origins = new LruCache<uint64_t, const char*>(kMaxOrigins);
  return *origins;
}

} // namespace

void note_origin(uint64_t storage_id, const char* location) {
  origins().replace(storage_id, location);
}

const char* find_origin(uint64_t storage_id) {
  const auto found = origins().find(storage_id);
  return found ? *found : nullptr;
}

} // namespace lazyplug
