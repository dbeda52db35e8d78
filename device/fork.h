// Fork safety: worker threads and locks do not survive fork(), so a child must not touch a device its parent used.
#pragma once

#include <cstdint>

namespace lazyplug {

// Whether this process may use the device.
//   kFresh        nothing has touched the device; fork() is harmless.
//   kInitialized  the device is in use. Entered from kFresh by mark_initialized().
//   kBadFork      this process was forked from one in kInitialized. Final: every use of the device raises.
enum class ProcessState : uint8_t { kFresh, kInitialized, kBadFork };

ProcessState process_state();

inline bool is_initialized() {
  return process_state() == ProcessState::kInitialized;
}

inline bool is_in_bad_fork() {
  return process_state() == ProcessState::kBadFork;
}

// Moves a fresh process to kInitialized; otherwise does nothing. Thread-safe.
void mark_initialized();

// Raises RuntimeError in a bad fork.
void check_not_bad_fork();

// What every use of the device starts with: check_not_bad_fork(), then mark_initialized(). One load when already
// initialised. Thread-safe.
void ensure_initialized();

} // namespace lazyplug
