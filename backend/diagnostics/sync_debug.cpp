#include "backend/diagnostics/sync_debug.h"

#include <c10/util/Exception.h>

#include <string>

#include "backend/diagnostics/python_hooks.h"
#include "common/parsed_flag.h"

namespace lazyplug {

bool are_syncs_noted() {
  static ParsedFlag<bool> noted(config().sync_debug, [](const std::string& mode) { return mode != "default"; });
  return noted.get();
}

void note_sync_here(const std::string& cause) {
  const char* location = current_location();
  const std::string message = c10::str(
      "called a synchronizing LAZY operation: ",
      cause,
      location ? " (at " : "",
      location ? location : "",
      location ? ")" : "");
  TORCH_CHECK(config().sync_debug.get() != "error", message);
  TORCH_WARN(message);
}

} // namespace lazyplug
