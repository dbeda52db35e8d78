#pragma once

namespace lazyplug {

// The user's line as "file.py:12", interned for ever, or null. The Python
// bindings install how to find it.
using LocationFinder = const char* (*)();
void set_location_finder(LocationFinder finder);
const char* current_location();

} // namespace lazyplug
