#include "backend/caches/compile_storms.h"

#include "backend/api/cached_run.h"
#include "test/cpp/backend/caches/step_of_length.h"

namespace lazyplug {
namespace {

class CompileStormsTest : public BackendTest {
 protected:
  ~CompileStormsTest() override {
    clear_graphs();
  }

  const ScopedFlag<int64_t> limit_{config().max_unused_graphs, 16};
  // One trace a step, however long it takes.
  const ScopedFlag<int64_t> chunk_{config().chunk_nodes, 1 << 20};
};

TEST_F(CompileStormsTest, ProgramThatRepeatsIsNone) {
  for (int64_t round = 0; round < 3; ++round) {
    for (int64_t length = 1001; length <= 1012; ++length) {
      run_step_of_length(length - 1000);
      run_step_of_length(length - 1000);
    }
  }
  EXPECT_EQ(count("CompileStorm"), 0);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(CompileStormsTest, ProgramThatNeverRepeatsIsSoonCompiledNoMore) {
  for (int64_t length = 1; length <= 300; ++length) {
    run_step_of_length(length % 90 + 100 * (length / 90 + 1) % 7 + 1);
  }
  EXPECT_GE(count("CompileStorm"), 1);
  EXPECT_GT(count("RunAtOnce"), 1000);
  EXPECT_LE(count("Compile"), 40);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(CompileStormsTest, IsForgottenWithAllGraphs) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  EXPECT_TRUE(is_storming());
  clear_graphs();
  EXPECT_FALSE(is_storming());
  reset_metrics();
  run_step_of_length(41);
  EXPECT_EQ(count("RunAtOnce"), 0);
  EXPECT_EQ(count("CompileStorm"), 0);
}

TEST_F(CompileStormsTest, ANewGraphNowAndThenIsNone) {
  for (int64_t length = 1; length <= 24; ++length) {
    run_step_of_length(length);
    for (int i = 0; i < 40; ++i) {
      run_step_of_length(1);
    }
  }
  EXPECT_EQ(count("CompileStorm"), 0);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(CompileStormsTest, IsOverWhenTheProgramRepeatsItself) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  EXPECT_TRUE(is_storming());
  for (int i = 0; i < 12; ++i) {
    run_step_of_length(41);
    run_step_of_length(42);
  }
  EXPECT_FALSE(is_storming());
  reset_metrics();
  run_step_of_length(41);
  run_step_of_length(42);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(CompileStormsTest, IsOverWhenAnotherProgramBegins) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  ASSERT_TRUE(is_storming());
  note_another_program();
  EXPECT_FALSE(is_storming());
  reset_metrics();
  for (int64_t length = 41; length <= 60; ++length) {
    run_step_of_length(length);
  }
  EXPECT_TRUE(is_storming()) << "if it repeats itself no more, fewer graphs are enough";
  EXPECT_LE(count("Compile"), 9);
}

// Whose graphs are used again, though each comes but once at first.
TEST_F(CompileStormsTest, AnotherProgramOfSomeSizesIsNone) {
  const ScopedFlag<int64_t> limit(config().max_unused_graphs, 32);
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  ASSERT_TRUE(is_storming());
  for (int i = 0; i < 12; ++i) {
    run_step_of_length(1);
  }
  ASSERT_FALSE(is_storming());
  for (int64_t length = 41; length <= 46; ++length) {
    run_step_of_length(length);
  }
  ASSERT_FALSE(is_storming());
  note_another_program();
  reset_metrics();
  for (int round = 0; round < 4; ++round) {
    for (int64_t length = 101; length <= 112; ++length) {
      run_step_of_length(length);
    }
  }
  EXPECT_EQ(count("CompileStorm"), 0);
  EXPECT_EQ(count("Compile"), 12);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(CompileStormsTest, IsNotOverBeforeThat) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  EXPECT_TRUE(is_storming());
  reset_metrics();
  for (int64_t length = 41; length <= 700; ++length) {
    run_step_of_length(length % 300 + 1);
  }
  EXPECT_TRUE(is_storming());
  EXPECT_EQ(count("Compile"), 0);
}

TEST_F(CompileStormsTest, SameCallsOfOtherResultsAreNoRepetition) {
  // Each of twelve cells reads what the one before has made, or the true word instead.
  const at::Tensor truth = to_lazy(iota({3, 7}));
  const auto step = [&](uint64_t choices) {
    at::Tensor word = truth;
    at::Tensor sum = truth;
    for (int i = 0; i < 12; ++i) {
      const at::Tensor guess = (word * 0.5).tanh();
      sum = sum + guess;
      word = (choices >> i & 1) != 0 ? truth : guess;
    }
    sum.cpu();
  };
  uint64_t choices = 1;
  const auto next = [&] { return choices = choices * 6364136223846793005 + 1442695040888963407; };
  for (int i = 0; i < 100; ++i) {
    step(next() >> 40);
  }
  EXPECT_TRUE(is_storming());
  reset_metrics();
  for (int i = 0; i < 500; ++i) {
    step(next() >> 40);
  }
  EXPECT_TRUE(is_storming());
  EXPECT_EQ(count("Compile"), 0);
  for (int i = 0; i < 40; ++i) {
    step(5);
  }
  EXPECT_FALSE(is_storming());
}

TEST_F(CompileStormsTest, ListsOfAnyLengthAreOfOneKind) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  EXPECT_TRUE(is_storming());
  reset_metrics();
  const at::Tensor x = to_lazy(iota({3, 7}));
  for (size_t length = 3; length <= 9; ++length) {
    const std::vector<at::Tensor> list(length, x);
    EXPECT_EQ(at::cat(list).cpu().sizes()[0], 3 * length);
    run_step_of_length(41 + static_cast<int64_t>(length));
  }
  EXPECT_EQ(count("Compile"), 0);
}

TEST_F(CompileStormsTest, ThatItRepeatsMustBeClearerEachTime) {
  const auto storm = [] {
    for (int64_t length = 1; length <= 40; ++length) {
      run_step_of_length(length);
    }
  };
  const auto steps_until_over = [] {
    int64_t steps = 0;
    for (; is_storming() && steps < 1000; ++steps) {
      run_step_of_length(41);
    }
    return steps;
  };
  storm();
  const int64_t first = steps_until_over();
  storm();
  EXPECT_TRUE(is_storming());
  EXPECT_GT(steps_until_over(), first);
}

TEST_F(CompileStormsTest, OtherCallsAreRecorded) {
  for (int64_t length = 1; length <= 40; ++length) {
    run_step_of_length(length);
  }
  reset_metrics();
  const at::Tensor x = iota({5});
  expect_equal(to_lazy(x) + 1, x + 1);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(CompileStormsTest, MayBeSwitchedOff) {
  const ScopedFlag<int64_t> off(config().max_unused_graphs, 0);
  const int64_t before = count("CompileStorm");
  for (int64_t length = 50; length <= 90; ++length) {
    run_step_of_length(length);
  }
  EXPECT_EQ(count("CompileStorm"), before);
}

} // namespace
} // namespace lazyplug
