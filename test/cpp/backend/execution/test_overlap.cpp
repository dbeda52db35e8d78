#include "backend/execution/overlap.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <limits>

#include "common/intra_op_threads.h"
#include "lowering/calls/light_calls.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

constexpr float kEverything = std::numeric_limits<float>::infinity();

TEST(Overlap, PaysWhereThereIsRoomForTwoPools) {
  for (const auto& [threads, processors, pays] :
       {std::tuple{1, 1, false},
        {1, 2, true},
        {2, 2, false},
        {2, 3, false},
        {2, 4, true},
        {8, 8, false},
        {4, 8, true}}) {
    EXPECT_EQ(pays_to_overlap(threads, processors), pays) << threads << " of " << processors;
  }
}

class OverlapTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(processors_), &processors_), 0);
    num_threads_ = at::get_num_threads();
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof(processors_), &processors_);
    set_intra_op_threads(num_threads_);
  }

  cpu_set_t processors_{};
  int num_threads_ = 1;
  const ScopedFlag<std::string> overlap_{config().overlap, "auto"};
  const ScopedFlag<std::string> schedule_{config().schedule, ""};
};

TEST_F(OverlapTest, OnOneProcessorThereIsNone) {
  int first = 0;
  while (!CPU_ISSET(first, &processors_)) {
    ++first;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_processors(), 1);
  EXPECT_LT(overlapping_work(), 0);
}

TEST_F(OverlapTest, AllProcessorsAtWorkLeaveLightCalls) {
  if (available_processors() == 1) {
    GTEST_SKIP() << "there is one processor only";
  }
  set_intra_op_threads(available_processors());
  EXPECT_EQ(overlapping_work(), light_limit(available_processors()));
  set_intra_op_threads(1);
  EXPECT_EQ(overlapping_work(), kEverything);
}

TEST_F(OverlapTest, WhoAsksOftenHearsOfFlagsAndThreadsAtOnce) {
  OverlappingWork work;
  EXPECT_EQ(work.get(), overlapping_work());
  set_intra_op_threads(available_processors() + 1);
  EXPECT_EQ(work.get(), overlapping_work());
  const ScopedFlag<std::string> never(config().overlap, "never");
  EXPECT_LT(work.get(), 0);
  const ScopedFlag<std::string> schedule(config().schedule, "every:3");
  EXPECT_EQ(work.get(), overlapping_work());
}

TEST_F(OverlapTest, WhoAsksOftenHearsOfProcessorsSoon) {
  set_intra_op_threads(1);
  OverlappingWork work;
  const float before = work.get();
  const int first = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(work.get(), before);
  for (int i = 0; i < 16; ++i) {
    work.get();
  }
  EXPECT_LT(work.get(), 0);
}

TEST_F(OverlapTest, FlagsDecide) {
  const ScopedFlag<std::string> always(config().overlap, "always");
  EXPECT_EQ(overlapping_work(), kEverything);
  const ScopedFlag<std::string> never(config().overlap, "never");
  EXPECT_LT(overlapping_work(), 0);
  const ScopedFlag<std::string> decide(config().overlap, "auto");
  const ScopedFlag<std::string> schedule(config().schedule, "every:3");
  EXPECT_EQ(overlapping_work(), kEverything) << "workers are tested";
}

TEST_F(OverlapTest, SideCallsNeedAsManyProcessors) {
  const ScopedFlag<int64_t> side_calls(config().side_calls, 100);
  const int processors = available_processors();
  EXPECT_EQ(may_run_side_calls(1), processors >= 2 && at::get_num_interop_threads() > 1);
  EXPECT_FALSE(may_run_side_calls(processors));
  config().overlap.set("always");
  EXPECT_TRUE(may_run_side_calls(processors));
  config().side_calls.set(-1);
  EXPECT_FALSE(may_run_side_calls(1));
  config().side_calls.set(100);
  config().overlap.set("never");
  EXPECT_FALSE(may_run_side_calls(1));
}

} // namespace
} // namespace lazyplug
