#include "backend/execution/cut_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lazyplug {
namespace {

constexpr int64_t kMin = 300;
constexpr int64_t kMax = 3000;

std::vector<uint64_t> random_ops(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> ops(count);
  for (uint64_t& op : ops) {
    op = random();
  }
  return ops;
}

void note_all(CutPolicy& policy, const std::vector<uint64_t>& ops) {
  for (uint64_t op : ops) {
    policy.note(op);
  }
}

constexpr size_t kMaxBytes = 1000;
constexpr CutPolicy::Limits kLimits{10, kMin, kMax, kMaxBytes};

CutPolicy::Size nodes(int64_t count) {
  return {.nodes = static_cast<size_t>(count)};
}

bool should_cut(CutPolicy& policy, int64_t count) {
  return policy.should_cut(nodes(count), kLimits);
}

// After how many ops a loop over `body` is cut, each time.
std::vector<int64_t> chunks(CutPolicy& policy, const std::vector<uint64_t>& body, size_t ops) {
  std::vector<int64_t> sizes;
  int64_t size = 0;
  for (size_t i = 0; i < ops; ++i) {
    policy.note(body[i % body.size()]);
    if (should_cut(policy, ++size)) {
      policy.cut(kLimits);
      sizes.push_back(size);
      size = 0;
    }
  }
  return sizes;
}

// The same for one step, at whose end the program itself cuts the trace.
std::vector<int64_t> chunks_of_step(CutPolicy& policy, const std::vector<uint64_t>& step) {
  std::vector<int64_t> sizes = chunks(policy, step, step.size());
  int64_t rest = static_cast<int64_t>(step.size());
  for (int64_t size : sizes) {
    rest -= size;
  }
  policy.cut(kLimits);
  sizes.push_back(rest);
  return sizes;
}

class LoopOf : public testing::TestWithParam<size_t> {};

TEST_P(LoopOf, IsCutAfterTheSameWholeNumberOfStepsEachTime) {
  const auto period = static_cast<int64_t>(GetParam());
  const int64_t expected = (kMin + period - 1) / period * period;
  CutPolicy policy;
  const auto sizes = chunks(policy, random_ops(period, 1), 20 * kMax);
  ASSERT_GT(sizes.size(), 10);
  EXPECT_EQ(sizes[0], kMax);
  for (size_t i = 1; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i], expected) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(CutPolicy, LoopOf, testing::Values(1, 2, 7, 50, 300, 333, 1000, 2999));

TEST(CutPolicy, LoopLongerThanTheMaximumIsCutAtTheSamePlacesInEachStep) {
  constexpr size_t kPeriod = 5000;
  CutPolicy policy;
  const auto sizes = chunks(policy, random_ops(kPeriod, 2), 20 * kPeriod);
  // 3000, then at 6000 for lack of a known place, from then on at both places of each step.
  ASSERT_GT(sizes.size(), 20);
  for (size_t i = 2; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i], i % 2 == 0 ? 2000 : 3000) << i;
  }
}

TEST(CutPolicy, StreamWithoutRepetitionIsCutAtTheMaximum) {
  CutPolicy policy;
  const auto sizes = chunks(policy, random_ops(10 * kMax, 3), 10 * kMax);
  EXPECT_EQ(sizes, std::vector<int64_t>(10, kMax));
}

TEST(CutPolicy, NewLoopAfterAnOldOneFindsItsOwnPlace) {
  CutPolicy policy;
  chunks(policy, random_ops(100, 4), 2 * kMax);
  const auto sizes = chunks(policy, random_ops(400, 5), 5 * kMax);
  ASSERT_GT(sizes.size(), 2);
  for (size_t i = 1; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i], 400);
  }
}

TEST(CutPolicy, PlaceIsTheLastOpsInTheirOrder) {
  const auto window = random_ops(CutPolicy::kWindow, 6);
  auto swapped = window;
  std::swap(swapped.front(), swapped.back());
  CutPolicy policy;
  note_all(policy, random_ops(100, 7));
  note_all(policy, window);
  EXPECT_TRUE(should_cut(policy, kMax));
  note_all(policy, random_ops(57, 8));
  EXPECT_FALSE(should_cut(policy, kMin));
  note_all(policy, swapped);
  EXPECT_FALSE(should_cut(policy, kMin));
  note_all(policy, window);
  EXPECT_TRUE(should_cut(policy, kMin));
  EXPECT_FALSE(should_cut(policy, kMin - 1)) << "too short";
}

TEST(CutPolicy, StepsThatTheProgramEndsAreCutIntoGrowingChunks) {
  CutPolicy policy;
  EXPECT_EQ(chunks_of_step(policy, random_ops(111, 11)), (std::vector<int64_t>{111})) << "not known yet";
  const std::vector<int64_t> expected{10, 10, 10, 10, 13, 17, 23, 18};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(chunks_of_step(policy, random_ops(111, 12)), expected);
    EXPECT_EQ(chunks_of_step(policy, random_ops(9, 13)), (std::vector<int64_t>{9}));
  }
}

TEST(CutPolicy, LongStepHasAFewChunksOnly) {
  CutPolicy policy;
  chunks_of_step(policy, random_ops(2900, 18));
  EXPECT_EQ(chunks_of_step(policy, random_ops(2900, 18)).size(), 20);
}

TEST(CutPolicy, SomethingIsLeftToRecordWhileAChunkRuns) {
  for (const auto& [length, expected] :
       {std::pair{19, std::vector<int64_t>{19}}, std::pair{20, std::vector<int64_t>{10, 10}}}) {
    CutPolicy policy;
    chunks_of_step(policy, random_ops(length, 22));
    EXPECT_EQ(chunks_of_step(policy, random_ops(length, 22)), expected);
  }
}

TEST(CutPolicy, LongestOfTheLastStepsIsExpected) {
  CutPolicy policy;
  chunks_of_step(policy, random_ops(50, 23));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(chunks_of_step(policy, random_ops(19, 24)), (std::vector<int64_t>{10, 9})) << i;
  }
  EXPECT_EQ(chunks_of_step(policy, random_ops(19, 24)), (std::vector<int64_t>{19}));
}

TEST(CutPolicy, BytesCountAsNodesDo) {
  const auto window = random_ops(CutPolicy::kWindow, 21);
  CutPolicy policy;
  note_all(policy, window);
  EXPECT_FALSE(policy.should_cut({1, kMaxBytes - 1}, kLimits));
  EXPECT_TRUE(policy.should_cut({1, kMaxBytes}, kLimits));
  note_all(policy, window);
  EXPECT_TRUE(policy.should_cut({1, kMaxBytes / 4}, kLimits)) << "a known place";
  EXPECT_FALSE(policy.should_cut({1, kMaxBytes / 4 - 1}, kLimits));
}

TEST(CutPolicy, ChunksOfAStepDoNotDependOnWhatRepeatsWithinIt) {
  std::vector<uint64_t> step;
  for (int layer = 0; layer < 10; ++layer) {
    for (uint64_t op : random_ops(43, 14)) {
      step.push_back(op);
    }
  }
  CutPolicy policy;
  chunks_of_step(policy, step);
  const auto sizes = chunks_of_step(policy, step);
  EXPECT_GT(sizes.size(), 8);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(chunks_of_step(policy, step), sizes);
  }
}

TEST(CutPolicy, ProgramThatNoLongerEndsItsTracesIsALoop) {
  constexpr int64_t kPeriod = 70;
  CutPolicy policy;
  chunks_of_step(policy, random_ops(250, 15));
  const auto sizes = chunks(policy, random_ops(kPeriod, 16), 10 * kMax);
  // What was expected of a step comes in chunks still.
  const auto first_long = std::find(sizes.begin(), sizes.end(), kMax);
  ASSERT_LT(first_long - sizes.begin(), 15) << "where no place is known";
  ASSERT_GT(sizes.end() - first_long, 5);
  EXPECT_EQ(std::count(first_long, sizes.end(), 5 * kPeriod), sizes.end() - first_long - 1);
  for (const char* reason : {"it hardly ever waits", "it has done so once"}) {
    EXPECT_EQ(chunks_of_step(policy, random_ops(250, 15)), (std::vector<int64_t>{250})) << reason;
  }
  EXPECT_GT(chunks_of_step(policy, random_ops(250, 15)).size(), 5) << "it does again";
}

TEST(CutPolicy, CutForAnotherReasonDoesNotEndTheStep) {
  CutPolicy policy;
  note_all(policy, random_ops(20, 3));
  policy.cut_here();
  policy.cut(kLimits);
  EXPECT_EQ(policy.step(), 1);
  note_all(policy, random_ops(20, 4));
  policy.cut(kLimits);
  EXPECT_EQ(policy.step(), 2);
}

TEST(CutPolicy, RemembersABoundedNumberOfPlaces) {
  CutPolicy policy;
  const auto first = random_ops(CutPolicy::kWindow, 9);
  note_all(policy, first);
  EXPECT_TRUE(should_cut(policy, kMax));
  for (uint64_t op : random_ops(5000, 10)) {
    policy.note(op);
    EXPECT_TRUE(should_cut(policy, kMax));
  }
  note_all(policy, first);
  EXPECT_FALSE(should_cut(policy, kMin)) << "forgotten";
}

} // namespace
} // namespace lazyplug
