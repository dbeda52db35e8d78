#include "backend/diagnostics/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

#include "backend/diagnostics/python_hooks.h"
#include "common/config.h"

namespace lazyplug {

void note_sync(std::string_view cause) {
  static std::atomic<uint64_t> silent_version{0}; // of the flag
  const uint64_t version = config().sync_debug.version();
  if (version == silent_version.load(std::memory_order_relaxed)) {
    return;
  }
  const std::string mode = config().sync_debug.get();
  if (mode == "default") {
    silent_version.store(version, std::memory_order_relaxed);
    return;
  }
  const char* location = current_location();
  const std::string message = c10::str(
      "called a synchronizing LAZY operation: ",
      cause,
      location ? " (at " : "",
      location ? location : "",
      location ? ")" : "");
  TORCH_CHECK(mode != "error", message);
  TORCH_WARN(message);
}

} // namespace lazyplug
