#include "device/fork.h"

#include <c10/util/Exception.h>

#include <pthread.h>

#include <atomic>

namespace lazyplug {
namespace {

std::atomic<ProcessState> state{ProcessState::kFresh};

// Runs in the child, before fork() returns there.
void after_fork_in_child() {
  if (state.load() == ProcessState::kInitialized) {
    state.store(ProcessState::kBadFork);
  }
}

// At load, so that no fork can slip in between initialisation and registration.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, after_fork_in_child);

} // namespace

ProcessState process_state() {
  return state.load(std::memory_order_relaxed);
}

void mark_initialized() {
  ProcessState expected = ProcessState::kFresh;
  state.compare_exchange_strong(expected, ProcessState::kInitialized);
}

void check_not_bad_fork() {
  TORCH_CHECK(
      !is_in_bad_fork(),
      "Cannot re-initialize LAZY in forked subprocess. To use LAZY with multiprocessing, "
      "you must use the 'spawn' start method");
}

void ensure_initialized() {
  if (is_initialized()) {
    return;
  }
  check_not_bad_fork();
  mark_initialized();
}

} // namespace lazyplug
