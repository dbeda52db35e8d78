#include "backend/cut_policy.h"

#include <gtest/gtest.h>

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

constexpr uint64_t kWork = 1000;

void note_all(CutPolicy& policy, const std::vector<uint64_t>& ops) {
  for (uint64_t op : ops) {
    policy.note(op, kWork);
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
std::vector<int64_t> chunks(CutPolicy& policy, const std::vector<uint64_t>& body, size_t ops, uint64_t work = kWork) {
  std::vector<int64_t> sizes;
  int64_t size = 0;
  for (size_t i = 0; i < ops; ++i) {
    policy.note(body[i % body.size()], work);
    if (should_cut(policy, ++size)) {
      policy.cut(kLimits);
      sizes.push_back(size);
      size = 0;
    }
  }
  return sizes;
}

// The same for one step, at whose end the program itself cuts the trace.
std::vector<int64_t> chunks_of_step(CutPolicy& policy, const std::vector<uint64_t>& step, uint64_t work = kWork) {
  std::vector<int64_t> sizes = chunks(policy, step, step.size(), work);
  int64_t rest = static_cast<int64_t>(step.size());
  for (int64_t size : sizes) {
    rest -= size;
  }
  policy.cut(kLimits);
  sizes.push_back(rest);
  return sizes;
}

// So many ops in chunks of this size.
std::vector<int64_t> in_chunks_of(int64_t size, int64_t ops) {
  std::vector<int64_t> sizes(ops / size, size);
  sizes.push_back(ops % size);
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

TEST(CutPolicy, StepsThatTheProgramEndsAreCutIntoChunks) {
  CutPolicy policy;
  EXPECT_EQ(chunks_of_step(policy, random_ops(250, 11)), (std::vector<int64_t>{250})) << "not known yet";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(chunks_of_step(policy, random_ops(250, 12)), in_chunks_of(32, 250));
    EXPECT_EQ(chunks_of_step(policy, random_ops(99, 13)), in_chunks_of(32, 99)) << "as of the longest step";
  }
  for (int i = 0; i < 8; ++i) {
    chunks_of_step(policy, random_ops(99, 13));
  }
  EXPECT_EQ(chunks_of_step(policy, random_ops(99, 13)), (std::vector<int64_t>{13, 13, 13, 13, 13, 13, 21}))
      << "no longer one is expected";
}

TEST(CutPolicy, ChunkHasALeastNumberOfOps) {
  CutPolicy policy;
  chunks_of_step(policy, random_ops(45, 17));
  EXPECT_EQ(chunks_of_step(policy, random_ops(45, 17)), (std::vector<int64_t>{10, 10, 10, 15}));
}

TEST(CutPolicy, ChunksAreEqualInWorkNotInOps) {
  CutPolicy policy;
  const auto ops = random_ops(200, 18);
  const auto step = [&] {
    std::vector<int64_t> sizes = chunks(policy, ops, 100, 9 * kWork);
    for (int64_t size : chunks_of_step(policy, ops, kWork)) {
      sizes.push_back(size);
    }
    return sizes;
  };
  step();
  EXPECT_EQ(step(), (std::vector<int64_t>{16, 16, 16, 16, 16, 16, 102, 98})) << "and 4 before the 102";
}

TEST(CutPolicy, ChunksStayIfOneStepWasALittleLonger) {
  const auto step = random_ops(1400, 23);
  CutPolicy policy;
  chunks_of_step(policy, random_ops(1600, 24));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(chunks_of_step(policy, step), in_chunks_of(200, 1400)) << i;
  }
}

TEST(CutPolicy, SomethingIsLeftToRecordWhileAChunkRuns) {
  for (const auto& [length, expected] :
       {std::pair{19, std::vector<int64_t>{19}}, std::pair{20, std::vector<int64_t>{10, 10}}}) {
    CutPolicy policy;
    chunks_of_step(policy, random_ops(length, 22));
    EXPECT_EQ(chunks_of_step(policy, random_ops(length, 22)), expected);
  }
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
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(chunks_of_step(policy, step), in_chunks_of(54, 430));
  }
}

TEST(CutPolicy, ProgramThatNoLongerEndsItsTracesIsALoop) {
  constexpr int64_t kPeriod = 70;
  CutPolicy policy;
  chunks_of_step(policy, random_ops(250, 15));
  const auto sizes = chunks(policy, random_ops(kPeriod, 16), 10 * kMax);
  // What was expected of a step comes in chunks still.
  ASSERT_GT(sizes.size(), 15);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(sizes[i], 32) << i;
  }
  EXPECT_EQ(sizes[7], kMax) << "no place is known";
  for (size_t i = 8; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i], 5 * kPeriod) << i;
  }
  for (const char* reason : {"it hardly ever waits", "it has done so once"}) {
    EXPECT_EQ(chunks_of_step(policy, random_ops(250, 15)), (std::vector<int64_t>{250})) << reason;
  }
  EXPECT_EQ(chunks_of_step(policy, random_ops(250, 15)), in_chunks_of(32, 250)) << "it does again";
}

TEST(CutPolicy, RemembersABoundedNumberOfPlaces) {
  CutPolicy policy;
  const auto first = random_ops(CutPolicy::kWindow, 9);
  note_all(policy, first);
  EXPECT_TRUE(should_cut(policy, kMax));
  for (uint64_t op : random_ops(5000, 10)) {
    policy.note(op, kWork);
    EXPECT_TRUE(should_cut(policy, kMax));
  }
  note_all(policy, first);
  EXPECT_FALSE(should_cut(policy, kMin)) << "forgotten";
}

} // namespace
} // namespace lazyplug
