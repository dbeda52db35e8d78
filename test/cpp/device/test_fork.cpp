#include "device/fork.h"

#include "device/runtime.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace lazyplug {
namespace {

// Runs `check` in a forked child; whether it returned true there.
template <typename Check>
bool true_in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(check() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_bad_and_says_so() {
  try {
    ensure_initialized();
    return false;
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return is_in_bad_fork() && !is_initialized() &&
           message ==
               "Cannot re-initialize LAZY in forked subprocess. To use LAZY with multiprocessing, "
               "you must use the 'spawn' start method";
  }
}

bool initializes() {
  ensure_initialized();
  return is_initialized();
}

// Exits with 0 if a process that has not touched the device, and its children, behave.
[[noreturn]] void check_from_fresh_process() {
  const bool fresh = process_state() == ProcessState::kFresh;
  const bool child_works = true_in_child(initializes);
  const bool parent_untouched = process_state() == ProcessState::kFresh;
  mark_initialized();
  const bool child_is_bad = true_in_child(is_bad_and_says_so);
  const bool parent_works = initializes();
  std::exit(fresh && child_works && parent_untouched && child_is_bad && parent_works ? 0 : 1);
}

// The "threadsafe" style starts the binary again, for this test alone: a process in which nothing is initialised.
TEST(ForkDeathTest, OnlyForksOfAnInitializedProcessAreBad) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(check_from_fresh_process(), testing::ExitedWithCode(0), "");
}

TEST(Fork, BadForkIsFinal) {
  ensure_initialized();
  EXPECT_TRUE(true_in_child([] {
    mark_initialized();
    return is_bad_and_says_so() && true_in_child(is_bad_and_says_so);
  }));
}

TEST(Fork, DeviceCannotBeSetInBadFork) {
  ensure_initialized();
  EXPECT_TRUE(true_in_child([] {
    try {
      set_device(0);
      return false;
    } catch (const c10::Error&) {
      return true;
    }
  }));
}

} // namespace
} // namespace lazyplug
