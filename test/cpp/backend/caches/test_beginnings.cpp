#include "backend/caches/beginnings.h"

#include <gtest/gtest.h>

#include "backend/api/cached_run.h"
#include "backend/caches/compile_storms.h"
#include "backend/caches/steps.h"
#include "test/cpp/backend/caches/step_of_length.h"

namespace lazyplug {
namespace {

constexpr size_t kOps = 10;

class BeginningsTest : public testing::Test {
 protected:
  BeginningsTest() {
    begin_anew();
  }
  ~BeginningsTest() override {
    begin_anew();
  }

  // Steps of a graph that came first in `first_step`, or in this one (0). Returns when it came first.
  static uint64_t run_steps(int64_t count, uint64_t first_step = 0, size_t num_ops = kOps) {
    for (int64_t i = 0; i < count; ++i) {
      note_step();
      first_step = first_step == 0 ? current_step() : first_step;
      note_graph(num_ops, first_step, 0);
    }
    return first_step;
  }
};

TEST_F(BeginningsTest, EndsAfterSomeSteps) {
  for (int i = 0; i < 48; ++i) {
    run_steps(1);
    ASSERT_TRUE(is_beginning());
  }
  run_steps(1);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, IsThatOfWhatRepeatsItself) {
  run_steps(90);
  const uint64_t first = run_steps(48);
  EXPECT_TRUE(is_beginning());
  run_steps(10, first);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, EndsWhenOneGraphHasComeOften) {
  note_graph(kOps, current_step(), 39);
  EXPECT_TRUE(is_beginning());
  note_graph(kOps, current_step(), 40);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, EndsAfterSomeUpdates) {
  run_steps(2);
  for (int i = 0; i < 100; ++i) {
    note_update();
  }
  EXPECT_TRUE(is_beginning()) << "each parameter may be updated by itself";
  run_steps(4);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, ProgramThatGoesOnDoesNotBeginAgain) {
  const uint64_t first = run_steps(60);
  for (int i = 0; i < 60; ++i) {
    run_steps(3); // new
    run_steps(1, first);
    ASSERT_FALSE(is_beginning());
  }
  run_steps(60, first);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, AnotherProgramBegins) {
  run_steps(100);
  const uint64_t first = run_steps(7); // the first of them repeats nothing
  EXPECT_FALSE(is_beginning());
  run_steps(1, first);
  EXPECT_TRUE(is_beginning());
  run_steps(60, first);
  EXPECT_FALSE(is_beginning());
}

TEST_F(BeginningsTest, WhatRepeatsItselfSoonAfterwardsIsOfTheSameProgram) {
  run_steps(20);
  uint64_t first = run_steps(1);
  run_steps(30, first);
  EXPECT_FALSE(is_beginning());
  first = run_steps(1);
  run_steps(20, first);
  EXPECT_FALSE(is_beginning());
}

// Most of its steps ran at once meanwhile, so that it has not been seen to repeat itself.
TEST_F(BeginningsTest, WhatBeganAndComesBackLateIsOfTheSameProgram) {
  const uint64_t first = run_steps(1);
  run_steps(4, first);
  run_steps(1);
  for (int i = 0; i < 120; ++i) {
    note_step();
  }
  for (int i = 0; i < 60; ++i) {
    run_steps(1, first);
    ASSERT_FALSE(is_beginning());
  }
}

TEST_F(BeginningsTest, AnotherOneThatSharesLittleWithTheBeginningBegins) {
  const uint64_t drawn = run_steps(1);
  for (int i = 0; i < 120; ++i) {
    run_steps(1);
  }
  EXPECT_FALSE(is_beginning());
  uint64_t first = 0;
  for (int i = 0; i < 8; ++i) {
    first = run_steps(1, first);
    note_graph(kOps / 4, drawn, 60);
  }
  EXPECT_TRUE(is_beginning());
}

TEST_F(BeginningsTest, WhatGoesOnRepeatingItselfIsAnotherOneInTheEnd) {
  run_steps(1, run_steps(1));
  run_steps(60, current_step());
  const uint64_t first = run_steps(1);
  run_steps(20, first);
  EXPECT_FALSE(is_beginning());
  run_steps(20, first);
  EXPECT_TRUE(is_beginning());
}

TEST_F(BeginningsTest, AnotherOneOfLongStepsBeginsSooner) {
  run_steps(100);
  const uint64_t first = run_steps(2, 0, 1000);
  run_steps(1, first, 1000);
  EXPECT_TRUE(is_beginning());
}

TEST_F(BeginningsTest, WhatAllProgramsDoIsOfNoWeight) {
  const uint64_t old = run_steps(100);
  uint64_t first = 0;
  for (int i = 0; i < 8; ++i) {
    first = run_steps(1, first);
    note_graph(kOps / 4, old, 60);
  }
  EXPECT_TRUE(is_beginning());
}

TEST_F(BeginningsTest, ShortStepThatIsOldIsOfNoWeight) {
  const uint64_t old = run_steps(100);
  const uint64_t first = run_steps(1);
  run_steps(1, old, 1);
  run_steps(7, first);
  EXPECT_TRUE(is_beginning());
}

TEST_F(BeginningsTest, WhatOnlyBringsNewGraphsHasNotBegun) {
  run_steps(60);
  for (int i = 0; i < 60; ++i) {
    run_steps(1);
    ASSERT_FALSE(is_beginning());
  }
}

TEST_F(BeginningsTest, StepsOfAnotherKindBetweenOthersAreNoBeginning) {
  const uint64_t old = run_steps(60);
  uint64_t first = 0;
  for (int i = 0; i < 10; ++i) {
    first = run_steps(2, first);
    run_steps(1, old);
    ASSERT_FALSE(is_beginning());
  }
}

class AgesTest : public BeginningsTest {
 protected:
  AgesTest() {
    note_ages({}, false); // whatever memory the tests before have left
    begin_anew();
  }
  static uint64_t make_tensor() {
    return ++newest_;
  }
  static void run_known(int count, uint64_t oldest_read) {
    for (int i = 0; i < count; ++i) {
      note_step();
      note_ages({oldest_read, make_tensor()}, true);
      note_graph(kOps, first_step_, 50);
    }
  }
  static void run_unknown(uint64_t oldest_read) {
    note_step();
    note_ages({oldest_read, make_tensor()}, false);
  }
  // A program that is over its beginning. Returns a tensor that it reads in each step.
  static uint64_t run_program() {
    const uint64_t parameter = make_tensor();
    run_unknown(parameter);
    first_step_ = current_step();
    run_known(60, parameter);
    EXPECT_FALSE(is_beginning());
    return parameter;
  }

 private:
  static inline uint64_t newest_ = uint64_t{1} << 40; // newer than what the process has
  static inline uint64_t first_step_ = 0;
};

TEST_F(AgesTest, ProgramThatReadsNothingOldBeginsAtOnce) {
  run_program();
  run_unknown(make_tensor());
  EXPECT_TRUE(is_beginning());
}

TEST_F(AgesTest, WhatReadsAnythingOldIsOfTheSameProgram) {
  const uint64_t parameter = run_program();
  run_unknown(parameter);
  EXPECT_FALSE(is_beginning());
}

TEST_F(AgesTest, WhatReadsResultsOfTheProgramIsOfIt) {
  const uint64_t parameter = run_program();
  const uint64_t result = make_tensor();
  run_known(1, parameter);
  run_unknown(result);
  EXPECT_FALSE(is_beginning());
}

TEST_F(AgesTest, WhatReadsNothingTellsNothing) {
  run_program();
  const uint64_t parameter = make_tensor();
  run_unknown(Ages::kNone);
  EXPECT_FALSE(is_beginning());
  run_known(1, Ages::kNone);
  run_unknown(parameter);
  EXPECT_TRUE(is_beginning());
}

TEST_F(AgesTest, ProgramThatIsLeftWithoutMemoryHasEnded) {
  const uint64_t parameter = run_program();
  const auto run_left = [&](uint64_t times_empty) {
    note_step();
    return note_ages({parameter, make_tensor(), times_empty}, true);
  };
  EXPECT_TRUE(run_left(1));
  EXPECT_TRUE(is_beginning());
  run_steps(50);
  ASSERT_FALSE(is_beginning());
  EXPECT_FALSE(run_left(1));
  EXPECT_TRUE(run_left(2));
  EXPECT_FALSE(run_left(3)) << "it leaves nothing behind in each step";
  run_steps(50);
  EXPECT_TRUE(run_left(0)); // as before
}

TEST_F(AgesTest, ProgramThatKeepsNothingAndReadsOftenBeginsTwice) {
  run_program();
  uint64_t times_empty = 0;
  const auto is_left = [&](uint64_t graph) {
    run_steps(100);
    return note_ages({Ages::kNone, make_tensor(), ++times_empty, 0, graph}, true);
  };
  EXPECT_TRUE(is_left(7));
  EXPECT_TRUE(is_left(7));
  EXPECT_FALSE(is_left(7)) << "it is the same program still";
  EXPECT_FALSE(is_left(7));
  EXPECT_TRUE(is_left(8));
  EXPECT_TRUE(is_left(7));
}

TEST_F(AgesTest, EachDeviceHasItsMemory) {
  const uint64_t parameter = run_program();
  const auto run_left = [&](uint64_t times_empty, size_t device) {
    note_step();
    return note_ages({parameter, make_tensor(), times_empty, device}, true);
  };
  run_left(1, 0);
  run_left(5, 1);
  for (size_t device : {0, 1, 0}) {
    run_steps(50);
    EXPECT_FALSE(run_left(device == 0 ? 1 : 5, device));
  }
}

// The next one is noticed by what it repeats, although something else has just begun, and has come often.
TEST_F(AgesTest, ProgramAfterAShortOneBegins) {
  run_program();
  run_steps(100, current_step());
  EXPECT_TRUE(note_ages({Ages::kNone, make_tensor(), 1}, true));
  note_graph(kOps, current_step(), 40);
  ASSERT_FALSE(is_beginning());
  const uint64_t first = run_steps(1);
  run_steps(7, first);
  EXPECT_TRUE(is_beginning());
}

TEST_F(AgesTest, KnownGraphOfNewTensorsDoesNotHideTheProgram) {
  run_program();
  const uint64_t parameter = make_tensor();
  run_known(1, make_tensor());
  run_unknown(parameter);
  EXPECT_TRUE(is_beginning());
}

TEST_F(AgesTest, ProgramAfterOneThatNeverRepeatsBeginsAtOnce) {
  const uint64_t parameter = run_program();
  for (int i = 0; i < 16; ++i) {
    run_unknown(parameter);
  }
  ASSERT_FALSE(is_beginning());
  run_unknown(make_tensor());
  EXPECT_TRUE(is_beginning());
}

TEST_F(AgesTest, ProgramThatKeepsNothingDoesNotBeginAgain) {
  run_program();
  for (int i = 0; i < 60; ++i) {
    run_unknown(make_tensor());
    run_steps(1); // which ends the beginning
  }
  ASSERT_FALSE(is_beginning());
  run_known(30, make_tensor());
  run_unknown(make_tensor());
  EXPECT_FALSE(is_beginning());
}

// What is compiled, and when: of two programs, the second one's graphs, soon after it has begun.
TEST_F(BeginningsTest, SecondProgramIsCompiledAsTheFirst) {
  const ScopedFlag<std::string> automatic(config().compile, "auto");
  const ScopedFlag<int64_t> chunk(config().chunk_nodes, 1 << 20);
  clear_graphs();
  for (int i = 0; i < 100; ++i) {
    run_step_of_length(1);
  }
  reset_metrics();
  for (int i = 0; i < 9; ++i) {
    run_step_of_length(2);
  }
  run_step_of_length(3);
  EXPECT_EQ(count("Compile"), 2);
  EXPECT_EQ(count("RunUncompiled"), 7);
  clear_graphs();
}

TEST_F(BeginningsTest, ProgramAfterAStormIsCompiledAtOnce) {
  const ScopedFlag<std::string> automatic(config().compile, "auto");
  const ScopedFlag<int64_t> limit(config().max_unused_graphs, 24);
  const ScopedFlag<int64_t> chunk(config().chunk_nodes, 1 << 20);
  clear_graphs();
  const at::Tensor weight = to_lazy(iota({3, 7}));
  for (int length = 1; length <= 40; ++length) {
    at::Tensor x = weight;
    for (int i = 0; i < length; ++i) {
      x = x.sin() + weight;
    }
    x.cpu();
  }
  ASSERT_TRUE(is_storming());
  reset_metrics();
  const at::Tensor other = to_lazy(iota({5}));
  other.cos().cpu();
  EXPECT_FALSE(is_storming());
  EXPECT_TRUE(is_beginning());
  EXPECT_EQ(count("Compile"), 1);
  clear_graphs();
}

} // namespace
} // namespace lazyplug
