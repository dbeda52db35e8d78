#pragma once

#include <cstdint>

namespace lazyplug {

// The program reads a result, or marks a step: what comes next is another step. Thread-safe, as all here.
void note_step();
// The number of this step.
uint64_t current_step();

} // namespace lazyplug
