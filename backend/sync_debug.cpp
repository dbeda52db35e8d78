#include "backend/sync_debug.h"

#include <c10/util/Exception.h>

#include <string>

#include "backend/python_hooks.h"
#include "common/config.h"

namespace lazyplug {

void note_sync(std::string_view cause) {
  const std::string mode = config().sync_debug.get();
  if (mode == "default") {
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
