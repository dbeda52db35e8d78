#include "common/intra_op_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace lazyplug {
namespace {

int threads_of_another_thread() {
  int number = 0;
  std::thread([&] { number = at::get_num_threads(); }).join();
  return number;
}

TEST(IntraOpThreads, TheFirstLoopOfALibraryOnAThreadDoesNotChangeTheNumber) {
  int inside = 0;
  int after = 0;
  std::thread([&] {
    IntraOpThreadsScope scope;
    scope.use(scope.before() + 1);
    inside = scope.before() + 1;
    at::parallel_for(0, 1, 1, [](int64_t /*begin*/, int64_t /*end*/) {});
    after = at::get_num_threads();
  }).join();
  EXPECT_EQ(after, inside);
}

TEST(IntraOpThreads, AreSetForTheCallingThreadAlone) {
  const int others = threads_of_another_thread();
  ASSERT_TRUE(set_intra_op_threads(others + 2));
  EXPECT_EQ(at::get_num_threads(), others + 2);
  EXPECT_EQ(threads_of_another_thread(), others);
  ASSERT_TRUE(set_intra_op_threads(others));
  EXPECT_EQ(at::get_num_threads(), others);
}

TEST(IntraOpThreads, AreGivenBackWhenAScopeThrows) {
  const int before = at::get_num_threads();
  try {
    IntraOpThreadsScope threads;
    EXPECT_EQ(threads.before(), before);
    threads.use(before + 2);
    EXPECT_EQ(at::get_num_threads(), before + 2);
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(at::get_num_threads(), before);
  }
}

} // namespace
} // namespace lazyplug
