#pragma once

#include <c10/util/StringUtil.h>

#include <string>

namespace lazyplug {

// Whether the flag `sync_debug` asks for anything.
bool are_syncs_noted();
// Warns or raises RuntimeError, with the user's line.
void note_sync_here(const std::string& cause);

// Called where the program forces results to be computed and waits for them: it reads a value, copies to the CPU, or
// runs an op there. Warns or raises if the flag says so, with what the arguments are together.
template <typename... Args>
void note_sync(const Args&... cause) {
  if (are_syncs_noted()) {
    note_sync_here(c10::str(cause...));
  }
}

} // namespace lazyplug
