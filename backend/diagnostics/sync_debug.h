#pragma once

#include <string_view>

namespace lazyplug {

// Called where the program forces results to be computed and waits for them: it reads a value, copies to the CPU, or
// runs an op there. Warns or raises RuntimeError, with the user's line, if the flag `sync_debug` says so.
void note_sync(std::string_view cause);

} // namespace lazyplug
