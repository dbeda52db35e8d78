#include "backend/caches/short_steps.h"

#include <functional>
#include <random>

#include "backend/api/cached_run.h"
#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

using std::chrono::microseconds;

// A program whose steps have so many ops, each of which takes so long when it is recorded, and when it runs at once.
class StepProgram {
 public:
  StepProgram(int64_t ops, int64_t recorded_us, int64_t at_once_us)
      : ops_(ops), recorded_us_(recorded_us), at_once_us_(at_once_us) {}

  // Returns how many steps have run at once.
  int64_t run(ShortSteps& trials, int64_t num_steps) {
    int64_t num_at_once = 0;
    for (int64_t step = 0; step < num_steps; ++step) {
      num_at_once += is_at_once_ ? 1 : 0;
      totals_.ops += ops_;
      totals_.changes += changes_per_step_;
      totals_.time += microseconds(pace_ * ops_ * (is_at_once_ ? at_once_us_ : recorded_us_));
      is_at_once_ = trials.end_step(static_cast<uint64_t>(ops_), totals_);
    }
    return num_at_once;
  }

  void set_ops(int64_t ops) {
    ops_ = ops;
  }
  void set_changes(int64_t changes) {
    changes_per_step_ = changes;
  }
  void pause(microseconds time) {
    totals_.time += time;
  }
  // All that follows takes so many times as long.
  void set_pace(int64_t pace) {
    pace_ = pace;
  }
  void reset_counters() {
    totals_.ops = totals_.changes = 0;
  }

 private:
  int64_t ops_;
  const int64_t recorded_us_;
  const int64_t at_once_us_;
  int64_t changes_per_step_ = 0;
  int64_t pace_ = 1;
  bool is_at_once_ = false;
  ShortSteps::Totals totals_;
};

constexpr int64_t kEnough = 3'000; // steps for a trial

TEST(ShortSteps, WhatIsFasterStays) {
  ShortSteps slow_reads;
  StepProgram line_search(6, 4, 3);
  line_search.run(slow_reads, kEnough);
  EXPECT_EQ(slow_reads.num_trials(), 1);
  EXPECT_EQ(slow_reads.num_won(), 1);
  EXPECT_EQ(line_search.run(slow_reads, 1'000), 1'000);

  ShortSteps fast_reads;
  StepProgram simulation(6, 3, 4);
  EXPECT_LT(simulation.run(fast_reads, kEnough), kEnough / 2);
  EXPECT_EQ(fast_reads.num_trials(), 1);
  EXPECT_EQ(fast_reads.num_won(), 0);
  EXPECT_EQ(simulation.run(fast_reads, 1'000), 0);
}

TEST(ShortSteps, LongStepsAreNotTried) {
  ShortSteps loop;
  EXPECT_EQ(StepProgram(200, 3, 1).run(loop, kEnough), 0);
  EXPECT_EQ(StepProgram(1'100, 2, 1).run(loop, kEnough), 0);
  EXPECT_EQ(loop.num_trials(), 0);
  ShortSteps trials;
  StepProgram program(100, 4, 1);
  for (int i = 0; i < kEnough; ++i) { // unless all of them are alike
    program.set_ops(100 + i % 2);
    EXPECT_EQ(program.run(trials, 1), 0);
  }
  EXPECT_EQ(trials.num_trials(), 0);
}

TEST(ShortSteps, ALoopAroundALongerStepIsTried) {
  ShortSteps trials;
  StepProgram program(100, 4, 3);
  program.run(trials, 100);
  EXPECT_EQ(trials.num_won(), 1);
  EXPECT_EQ(program.run(trials, 100), 100);
}

TEST(ShortSteps, ALoopAroundManyTinyOpsIsTried) {
  ShortSteps trials;
  StepProgram program(1'000, 2, 1);
  program.run(trials, 100);
  EXPECT_EQ(trials.num_won(), 1);
  EXPECT_EQ(program.run(trials, 100), 100);
}

TEST(ShortSteps, StepsOfMuchComputationAreNotTried) {
  ShortSteps trials;
  EXPECT_EQ(StepProgram(6, 2'000, 1'500).run(trials, kEnough), 0);
  EXPECT_EQ(trials.num_trials(), 0);
}

TEST(ShortSteps, StopWhereStepsTakeMuchLongerAtOnce) {
  ShortSteps trials;
  EXPECT_LT(StepProgram(6, 50, 40'000).run(trials, kEnough), 10);
  EXPECT_EQ(trials.num_won(), 0);
}

TEST(ShortSteps, AnotherProgramDoesNotGoWithTheLastForLong) {
  ShortSteps trials;
  StepProgram(6, 4, 3).run(trials, kEnough);
  ASSERT_EQ(trials.num_won(), 1);
  StepProgram other(7, 2'000, 30'000);
  EXPECT_LE(other.run(trials, 1'000), 5);
}

TEST(ShortSteps, AreTriedMoreAndMoreSeldom) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  program.run(trials, 100'000);
  EXPECT_EQ(trials.num_trials(), 2);
  program.run(trials, 1'000'000);
  EXPECT_LE(trials.num_trials(), 5);
}

TEST(ShortSteps, EachProgramHasItsTrial) {
  ShortSteps trials;
  StepProgram line_search(6, 4, 3);
  StepProgram simulation(7, 3, 4);
  StepProgram training(200, 4, 3);
  line_search.run(trials, kEnough);
  simulation.run(trials, kEnough);
  EXPECT_EQ(trials.num_trials(), 2);
  EXPECT_EQ(trials.num_won(), 1);
  EXPECT_LE(training.run(trials, 1'000), 1) << "is long, and so not tried";
  EXPECT_EQ(trials.num_trials(), 2);
  line_search.run(trials, 1);
  EXPECT_GE(line_search.run(trials, 100), 30);
  simulation.run(trials, 1);
  EXPECT_EQ(simulation.run(trials, 100), 0);
}

TEST(ShortSteps, ATrialIsAboutTheProgramThatBeganIt) {
  constexpr int64_t kPair = 16 + 48;
  for (const int64_t num_steps : {kPair, kPair + 16}) { // of stretches that the first program finishes, after the first
    ShortSteps trials;
    StepProgram(1, 10, 9).run(trials, 32 + 48 + num_steps + 8);
    ASSERT_EQ(trials.num_trials(), 0);
    StepProgram other(6, 1, 3);
    other.run(trials, kEnough);
    EXPECT_EQ(other.run(trials, 1'000), 0) << num_steps;
  }
}

TEST(ShortSteps, ALoopAroundOneStepIsTriedInShortStretches) {
  ShortSteps one;
  StepProgram op(1, 10, 9);
  EXPECT_EQ(op.run(one, 32 + 3 * (48 + 16)), 3 * 48) << "at once first";
  EXPECT_EQ(one.num_won(), 1);
  ShortSteps two;
  StepProgram other(2, 10, 9);
  for (int i = 0; i < 32 + 3 * (48 + 16); ++i) {
    op.run(two, 1);
    other.run(two, 1);
  }
  EXPECT_EQ(two.num_trials(), 0);
}

TEST(ShortSteps, OneLoopAfterTheOtherHasItsTrialSoon) {
  ShortSteps trials;
  StepProgram program(1, 4, 3);
  EXPECT_EQ(program.run(trials, 100), 52) << "but for the 32 that are watched, and 16 to compare with";
  for (int64_t ops = 2; ops < 6; ++ops) {
    program.set_ops(ops);
    EXPECT_EQ(program.run(trials, 100), 68) << "but for the 32 that are watched";
  }
  EXPECT_EQ(trials.num_trials(), 0);
}

TEST(ShortSteps, OnePairIsEnoughForAClearLoss) {
  ShortSteps trials;
  EXPECT_LT(StepProgram(6, 2, 4).run(trials, kEnough), 200);
  EXPECT_EQ(trials.num_trials(), 1);
}

TEST(ShortSteps, TwoPairsAreEnoughForAClearGain) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  program.run(trials, 32 + 2 * (48 + 16));
  EXPECT_EQ(trials.num_won(), 1);
}

TEST(ShortSteps, AMachineWhosePaceChangesIsNoGain) {
  int64_t num_won = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::minstd_rand random(seed);
    ShortSteps trials;
    StepProgram program(6, 3, 4);
    for (int64_t step = 0; trials.num_trials() == 0; ++step) {
      ASSERT_LT(step, 30);
      program.set_pace(2 - step % 2);
      program.run(trials, static_cast<int64_t>(50 + random() % 100));
    }
    num_won += trials.num_won();
  }
  EXPECT_EQ(num_won, 0);
}

TEST(ShortSteps, APauseOfTheProgramIsNoLoss) {
  ShortSteps trials;
  StepProgram line_search(6, 10, 9);
  for (int i = 0; i < kEnough / 20; ++i) { // a stretch of the loop has 48 steps
    line_search.run(trials, 20);
    line_search.pause(microseconds{5'000});
  }
  EXPECT_EQ(trials.num_trials(), 1);
  EXPECT_EQ(trials.num_won(), 1);
}

TEST(ShortSteps, APauseOfAProgramOfSeveralStepsIsNoLoss) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  for (int64_t i = 0; i < kEnough; ++i) { // a stretch has some 96 steps
    program.set_ops(6 + i % 2);
    program.run(trials, 1);
    program.pause(microseconds{i % 250 == 0 ? 200'000 : 0});
  }
  EXPECT_EQ(trials.num_trials(), 1);
  EXPECT_EQ(trials.num_won(), 1);
}

TEST(ShortSteps, WhatIsNotKnownGoesWithTheRest) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  program.run(trials, kEnough);
  int64_t num_at_once = 0;
  for (int64_t round = 0; round < 20; ++round) {
    program.set_ops(6);
    num_at_once += program.run(trials, 6);
    program.set_ops(5);
    num_at_once += program.run(trials, 1);
  }
  EXPECT_EQ(num_at_once, 20 * 7);
  EXPECT_EQ(trials.num_trials(), 1);
}

TEST(ShortSteps, ProgramsThatCompileAreNotTried) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  program.set_changes(1);
  EXPECT_EQ(program.run(trials, kEnough), 0);
  EXPECT_EQ(trials.num_trials(), 0);
}

TEST(ShortSteps, OutliveCountersThatAreReset) {
  ShortSteps trials;
  StepProgram program(6, 4, 3);
  program.run(trials, 500);
  program.reset_counters();
  program.run(trials, kEnough);
  EXPECT_EQ(trials.num_trials(), 1);
}

TEST(StepSoFar, IsEmptyUntilAnOpIsNoted) {
  StepSoFar step;
  EXPECT_TRUE(step.is_empty());
  step.note(op_info("aten::add", "Tensor"), 0);
  EXPECT_FALSE(step.is_empty());
}

TEST(StepSoFar, IsKnownByItsOpsAndItsLargestTensor) {
  const OpInfo& add = op_info("aten::add", "Tensor");
  const OpInfo& mul = op_info("aten::mul", "Tensor");
  const auto id = [](const std::vector<std::pair<const OpInfo*, int64_t>>& calls) {
    StepSoFar step;
    for (const auto& [op, num_elements] : calls) {
      step.note(*op, num_elements);
    }
    return step.id();
  };
  const uint64_t small = id({{&add, 16}, {&mul, 4'096}});
  EXPECT_EQ(id({{&mul, 1}, {&add, 32'767}}), small);
  EXPECT_NE(id({{&add, 16}, {&add, 4'096}}), small);
  EXPECT_NE(id({{&add, 16}}), small);
  const uint64_t large = id({{&add, 16}, {&mul, 32'768}});
  EXPECT_NE(large, small);
  EXPECT_EQ(id({{&mul, 100'000}, {&add, 131'071}}), large);
  EXPECT_NE(id({{&mul, 131'072}, {&add, 16}}), large);
  EXPECT_NE(id({{&mul, 1 << 20}, {&add, 16}}), id({{&mul, 1 << 22}, {&add, 16}}));
}

class ShortStepsTest : public BackendTest {
 protected:
  ~ShortStepsTest() override {
    clear_graphs();
  }

  static void run(int64_t num_steps) {
    at::Tensor x = to_lazy(iota({7}));
    at::Tensor expected = iota({7});
    for (int64_t step = 0; step < num_steps; ++step) {
      x = x * 0.5 + 1;
      expected = expected * 0.5 + 1;
      EXPECT_EQ(x.sum().item<float>(), expected.sum().item<float>());
    }
    expect_equal(x, expected);
  }
};

TEST_F(ShortStepsTest, TheFlagDecides) {
  run(200);
  EXPECT_EQ(count("RunAtOnce"), 0);
  {
    const ScopedFlag<std::string> always(config().run_at_once, "always");
    reset_metrics();
    run(10);
    EXPECT_EQ(count("RunAtOnce"), 30);
    EXPECT_EQ(count("NodesRecorded"), 0);
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
  reset_metrics();
  run(1);
  EXPECT_EQ(count("RunAtOnce"), 0);
}

TEST_F(ShortStepsTest, AreTriedUnlessTheTestsSayWhatIsRecorded) {
  const ScopedFlag<std::string> trials(config().run_at_once, "auto");
  {
    const ScopedFlag<int64_t> pieces(config().chunk_nodes, 16);
    run(6'000);
    EXPECT_EQ(count("ShortStepsTried"), 0);
    EXPECT_EQ(count("RunAtOnce"), 0);
  }
  const ScopedFlag<int64_t> whole(config().chunk_nodes, 0);
  for (int i = 0; i < 20 && count("ShortStepsTried") == 0; ++i) { // a busy machine's steps may be too long at first
    run(6'000);
  }
  EXPECT_EQ(count("ShortStepsTried"), 1);
  EXPECT_GT(count("RunAtOnce"), 0);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

// As long as steps have other names at once than recorded, no trial ends.
TEST_F(ShortStepsTest, AreKnownByTheirSizesBothWays) {
  const ScopedFlag<std::string> trials(config().run_at_once, "auto");
  const at::Tensor start = iota({40, 1000});
  const at::Tensor rows = at::tensor({int64_t{3}, int64_t{39}});
  const std::function<float(const at::Tensor&, const at::Tensor&)> steps[] = {
      [](const at::Tensor& x, const at::Tensor&) { return x.sum().item<float>(); },
      [](const at::Tensor& x, const at::Tensor&) { return x.mul_(-1).max().item<float>(); },
      [](const at::Tensor& x, const at::Tensor& i) { return x.index({i}).sum().item<float>(); },
      [](const at::Tensor& x, const at::Tensor&) { return at::stack({x[0], x[1]}).sum().item<float>(); }};
  for (const auto& step : steps) {
    const at::Tensor x = to_lazy(start);
    const at::Tensor i = to_lazy(rows);
    const at::Tensor expected = start.clone();
    clear_short_steps();
    reset_metrics();
    for (int n = 0; n < 20'000 && count("ShortStepsTried") == 0; ++n) {
      ASSERT_EQ(step(x, i), step(expected, rows));
    }
    EXPECT_EQ(count("ShortStepsTried"), 1);
    EXPECT_GT(count("RunAtOnce"), 0);
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
}

} // namespace
} // namespace lazyplug
