#include "backend/execution/step_plans.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "common/metrics.h"

namespace lazyplug {
namespace {

constexpr HandOverCosts kCosts{.recording = 5e-6, .waking = 1e-5, .job = 5e-6, .wake = 5e-5, .patience = 1e-4};

StepTimes even_step(size_t num_ops, float recording, float kernels) {
  return {
      .recording = std::vector<float>(num_ops, recording),
      .kernels = std::vector<float>(num_ops, kernels),
  };
}

TEST(TimeOfStep, WholeStepIsRecordedThenComputed) {
  EXPECT_NEAR(time_of_step(even_step(100, 1e-5, 2e-5), {}, kCosts), 3e-3 + kCosts.job, 1e-7);
}

TEST(TimeOfStep, PiecesAreComputedMeanwhile) {
  // Half is recorded after 500 us, handed over, and computed from 555 to 1,060 us; the rest follows.
  const double time = time_of_step(even_step(100, 1e-5, 1e-5), {50}, kCosts);
  EXPECT_NEAR(time, 1e-3 + 1.5e-5 + 5e-5 + 5e-6 + 5e-4 + 5e-6, 1e-7);
}

TEST(TimeOfStep, WhatNobodyWaitsForIsComputedMeanwhile) {
  // Of 400 us of kernels, the program waits for 80, which are computed while it records; the rest while it records the
  // next step, in which the worker is still awake when it is given the first piece.
  StepTimes step = even_step(100, 1e-5, 4e-6);
  step.num_awaited = 20;
  EXPECT_NEAR(time_of_step(step, {20}, kCosts), 1e-3 + 5e-6 + 1.5e-5, 1e-7);
  EXPECT_NEAR(time_of_step(step, {}, kCosts), 1.4e-3 + 5e-6, 1e-7);
}

TEST(TimeOfStep, WorkerThatIsStillBusyIsWaitedFor) {
  StepTimes step = even_step(100, 1e-6, 1e-5);
  step.num_awaited = 20;
  const double kernels = 1e-3 + 2 * kCosts.job;
  EXPECT_NEAR(time_of_step(step, {20}, kCosts), kernels, 5e-5) << "the worker computes all the time";
}

TEST(BestCuts, AreMadeWhereTheyGain) {
  const StepTimes step = even_step(400, 1e-5, 1e-5);
  const auto cuts = best_cuts(step, kCosts);
  ASSERT_GT(cuts.size(), 1);
  EXPECT_LT(time_of_step(step, cuts, kCosts), 0.7 * time_of_step(step, {}, kCosts));
}

TEST(BestCuts, StepThatCannotGainIsNotCut) {
  EXPECT_TRUE(best_cuts(even_step(10, 2e-6, 1e-6), kCosts).empty()) << "too short";
  EXPECT_TRUE(best_cuts(even_step(400, 1e-7, 1e-4), kCosts).empty()) << "nothing to hide";
  EXPECT_TRUE(best_cuts(even_step(400, 1e-4, 1e-7), kCosts).empty()) << "nothing to do meanwhile";
}

TEST(BestCuts, LongStepIsCutForASmallPartOfIt) {
  EXPECT_FALSE(best_cuts(even_step(400, 1e-6, 1e-4), kCosts).empty()) << "0.4 of 40 ms";
}

TEST(BestCuts, SetApartWhatNobodyWaitsFor) {
  StepTimes step = even_step(100, 3e-6, 1e-6);
  EXPECT_TRUE(best_cuts(step, kCosts).empty()) << "too short to gain";
  step.num_awaited = 30;
  EXPECT_EQ(best_cuts(step, kCosts), std::vector<size_t>{30});
  step.num_awaited = 100;
  EXPECT_TRUE(best_cuts(step, kCosts).empty());
}

TEST(BestCuts, GoNotBeyondWhatAWorkerMayCompute) {
  StepTimes step = even_step(400, 1e-5, 1e-5);
  step.num_overlapping = 200;
  const auto cuts = best_cuts(step, kCosts);
  ASSERT_FALSE(cuts.empty());
  EXPECT_LE(cuts.back(), 200);
  step.num_overlapping = 0;
  EXPECT_TRUE(best_cuts(step, kCosts).empty());
}

// A program of steps of equal ops, with a clock of its own.
class StepPlansTest : public testing::Test {
 protected:
  static constexpr size_t kOps = StepPlans::kMediumStep - 6;

  // Records a step, as long as what runs meanwhile makes it; returns its number of cuts.
  size_t run_step(uint64_t first_op, double cut_gain = 0.3, size_t num_ops = kOps) {
    size_t cuts = 0;
    for (size_t i = 0; i < num_ops; ++i) {
      now_ += 1e-5;
      plans_.note(first_op + i, may_overlap_);
      cuts += plans_.cuts_here();
    }
    const auto timed = plans_.end_step(SIZE_MAX, is_beginning_);
    num_timed_ += timed != 0;
    now_ += cuts == 0 ? kernels_ : kernels_ * (1 - cut_gain);
    if (timed != 0) {
      plans_.note_kernels(timed, std::vector<float>(num_ops, static_cast<float>(kernels_) / num_ops), 5e-6);
    }
    plans_.note_result();
    return cuts;
  }
  size_t run_steps(size_t count, uint64_t first_op, double cut_gain = 0.3) {
    size_t cuts = 0;
    for (size_t i = 0; i < count; ++i) {
      cuts = run_step(first_op, cut_gain);
    }
    return cuts;
  }
  static int64_t settled(const char* name) {
    return counter(name).value();
  }

  static constexpr double kKernels = 3e-3;
  // When a step has been timed, and has been on trial.
  static constexpr size_t kPlanned = StepPlans::kWarmUps + StepPlans::kTimed;
  static constexpr size_t kSettled = kPlanned + 21;
  static constexpr size_t kUnclear = 8; // more, if it is neither faster nor slower
  double now_ = 100;
  bool may_overlap_ = true;
  size_t num_timed_ = 0;
  bool is_beginning_ = true;
  double kernels_ = kKernels;
  StepPlans plans_{[this] { return now_; }};
};

TEST_F(StepPlansTest, StepThatComesAgainIsCutAndStaysSoIfItGains) {
  const int64_t before = settled("StepsCut");
  EXPECT_EQ(run_steps(kPlanned, 1), 0);
  const size_t cuts = run_steps(kSettled - kPlanned, 1);
  EXPECT_GT(cuts, 1);
  EXPECT_EQ(settled("StepsCut"), before + 1);
  for (size_t i = 2; i < StepPlans::kRetrials[0]; ++i) {
    EXPECT_EQ(run_step(1), cuts) << "the same until it is tried again";
  }
  run_steps(5'000, 1);
  EXPECT_EQ(run_step(1), cuts);
  EXPECT_EQ(settled("StepsCut"), before + 1);
}

TEST_F(StepPlansTest, CutsThatDoNotGainAreTakenBack) {
  const int64_t before = settled("StepsKeptWhole");
  const int64_t on_trial = settled("StepsOnTrial");
  run_steps(kPlanned, 1, /*cut_gain=*/0);
  EXPECT_GT(run_step(1, /*cut_gain=*/0) + run_step(1, /*cut_gain=*/0), 0) << "on trial";
  EXPECT_EQ(run_steps(kSettled + kUnclear - kPlanned, 1, /*cut_gain=*/0), 0);
  EXPECT_EQ(settled("StepsKeptWhole"), before + 1);
  const int64_t tried = settled("StepsOnTrial");
  EXPECT_GT(tried, on_trial);
  run_step(1, /*cut_gain=*/0);
  EXPECT_EQ(settled("StepsOnTrial"), tried);
}

TEST_F(StepPlansTest, CutsThatGainLittleAreTakenBack) {
  EXPECT_EQ(run_steps(kSettled + kUnclear, 1, /*cut_gain=*/1.5e-4 / kernels_), 0) << "not worth another processor";
  EXPECT_GT(run_steps(kSettled + kUnclear, 1'000, /*cut_gain=*/2.5e-4 / kernels_), 0);
}

TEST_F(StepPlansTest, ADisturbanceOfOneStretchDecidesNothing) {
  const int64_t before = settled("StepsCut");
  run_steps(kPlanned, 1);
  bool was_cut = false;
  size_t stretches = 0;
  for (size_t i = 0; settled("StepsCut") == before && i < 2 * kSettled; ++i) {
    // The third stretch is the first one of cuts that counts.
    const bool is_cut = run_step(1, stretches == 3 ? -1 : 0.3) != 0;
    stretches += is_cut != was_cut;
    was_cut = is_cut;
  }
  EXPECT_EQ(settled("StepsCut"), before + 1);
  EXPECT_GE(stretches, 4);
}

// Of programs whose data have other sizes each time, with steps that take up to half of their kernels' time more, or
// less.
TEST_F(StepPlansTest, ChanceDecidesSeldom) {
  std::mt19937 random(0);
  std::uniform_real_distribution<double> disturbance(-0.5, 0.5);
  constexpr int64_t kPrograms = 200;
  const auto num_cut = [&](double cut_gain) {
    const int64_t before = settled("StepsCut");
    for (int64_t program = 0; program < kPrograms; ++program) {
      plans_ = StepPlans([this] { return now_; });
      for (size_t i = 0; i < StepPlans::kRetrials[0] + 2 * kSettled; ++i) {
        now_ += disturbance(random) * kKernels; // of the step before
        run_step(1, cut_gain);
      }
    }
    return settled("StepsCut") - before;
  };
  EXPECT_LT(num_cut(0), kPrograms / 4) << "by medians, in half of them";
  EXPECT_GT(num_cut(0.5), kPrograms * 9 / 10);
}

TEST_F(StepPlansTest, LaterTrialsMendWhatADisturbanceHasDecided) {
  const int64_t before = settled("StepsReplanned");
  EXPECT_EQ(run_steps(kSettled, 1, /*cut_gain=*/-1), 0);
  EXPECT_EQ(run_steps(StepPlans::kRetrials[0] - 2, 1), 0);
  EXPECT_GT(run_steps(kSettled, 1), 0);
  EXPECT_EQ(settled("StepsReplanned"), before + 1);
  run_steps(StepPlans::kRetrials[1] + kSettled, 1, /*cut_gain=*/-1);
  EXPECT_EQ(run_step(1), 0);
  EXPECT_EQ(settled("StepsReplanned"), before + 2);
}

TEST_F(StepPlansTest, LaterTrialsKeepCutsThatGainLessAndNoneThatGainNothing) {
  const size_t cuts = run_steps(kSettled, 1);
  EXPECT_GT(cuts, 0);
  run_steps(StepPlans::kRetrials[0] + kSettled + kUnclear, 1, /*cut_gain=*/0.01);
  EXPECT_EQ(run_step(1), cuts);
  run_steps(StepPlans::kRetrials[1] + kSettled + kUnclear, 1, /*cut_gain=*/0);
  EXPECT_EQ(run_step(1), 0);
}

TEST_F(StepPlansTest, TrialsAreFew) {
  run_steps(5'000, 1);
  const int64_t before = settled("StepsReplanned");
  EXPECT_GT(run_steps(5'000, 1, /*cut_gain=*/-1), 0);
  EXPECT_EQ(settled("StepsReplanned"), before);
}

// Such as an evaluation and a training step.
TEST_F(StepPlansTest, StepThatBeginsAsAnotherHasAPlanOfItsOwn) {
  constexpr size_t kTrial = 28; // of what is neither faster nor slower
  const size_t cuts = run_steps(kSettled, 1);
  EXPECT_GT(cuts, 0);
  const auto run_longer = [this] { return run_step(1, 0.3, kOps + 50); };
  for (size_t i = 0; i < StepPlans::kWarmUps; ++i) {
    EXPECT_EQ(run_longer(), cuts) << "as the other, at first";
  }
  for (size_t i = 0; i < StepPlans::kWarmUps + StepPlans::kTimed; ++i) {
    EXPECT_EQ(run_longer(), 0) << "while it is timed";
  }
  EXPECT_GT(run_longer(), cuts) << "on trial";
  for (size_t i = 1; i < kTrial; ++i) {
    run_longer();
  }
  EXPECT_EQ(run_longer(), cuts) << "its own ones gain nothing more";
  EXPECT_EQ(run_step(1), cuts);
}

TEST_F(StepPlansTest, StepsThatTakeTurnsHavePlansOfTheirOwn) {
  for (size_t i = 0; i < kSettled + kUnclear + 2; ++i) {
    run_step(1);
    run_step(1000);
  }
  EXPECT_GT(run_step(1), 0);
  EXPECT_GT(run_step(1000), 0);
  EXPECT_EQ(run_step(2000), 0);
}

// A worker is left the rest of the one, for which the other waits.
TEST_F(StepPlansTest, WhatAStepLeavesToTheNextIsNoGain) {
  const int64_t before = settled("StepsCut");
  for (size_t i = 0; i < kSettled + kUnclear + 2; ++i) {
    const bool is_cut = run_step(1) != 0;
    now_ += is_cut ? 0.3 * kKernels : 0; // until the next one's result is there
    run_step(1000, 0, 20);
  }
  EXPECT_EQ(run_step(1), 0);
  EXPECT_EQ(settled("StepsCut"), before);
}

TEST_F(StepPlansTest, LongStepIsPlannedWhenItHasComeAndNeverAnew) {
  constexpr size_t kLong = StepPlans::kLongStep;
  EXPECT_EQ(run_step(1, 0.3, kLong), 0);
  run_step(5'000, 0.3, 20); // such as an evaluation after each epoch
  EXPECT_GT(run_step(1, 0.3, kLong), 0);
  may_overlap_ = false;
  EXPECT_EQ(run_step(10'000, 0.3, kLong), 0);
  may_overlap_ = true; // too late
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(run_step(10'000, 0.3, kLong), 0);
  }
}

TEST_F(StepPlansTest, SmallPartOfTheProgramIsNotPlanned) {
  for (size_t i = 0; i < 4 * kSettled; ++i) {
    EXPECT_EQ(run_step(1), 0);
    for (size_t j = 0; j < StepPlans::kLeastShare; ++j) {
      run_step(1'000'000 * (i + 1) + 1'000 * j);
    }
  }
}

TEST_F(StepPlansTest, StepThatComesSeldomIsNotPlanned) {
  const auto cuts_among = [this](size_t num_others, uint64_t first) {
    size_t cuts = 0;
    for (size_t i = 0; i < 4 * kSettled; ++i) {
      cuts += run_step(first);
      for (size_t j = 0; j < num_others; ++j) {
        run_step(1'000'000, 0.3, 1);
      }
    }
    return cuts;
  };
  EXPECT_EQ(cuts_among(StepPlans::kMostApart + 1, 1), 0);
  EXPECT_GT(cuts_among(1, 10'000), 0);
}

TEST_F(StepPlansTest, AfterTheBeginningNoStepIsPlanned) {
  run_steps(500, 1); // settled
  is_beginning_ = false;
  num_timed_ = 0;
  EXPECT_EQ(run_steps(500, 1'000'000), 0);
  EXPECT_EQ(num_timed_, 0);
  is_beginning_ = true; // of another program
  EXPECT_GT(run_steps(kPlanned + kSettled, 1'000'000), 0);
}

TEST_F(StepPlansTest, AfterTheBeginningLongStepsAreNotPlannedEither) {
  is_beginning_ = false;
  run_step(1, 0.3, StepPlans::kLongStep);
  EXPECT_EQ(run_step(1, 0.3, StepPlans::kLongStep), 0);
}

// Whose pieces would be compiled.
TEST_F(StepPlansTest, TrialThatTheEndOfTheBeginningFindsUnbegunIsNone) {
  run_steps(kPlanned, 1);
  EXPECT_GT(run_step(1), 0) << "on trial";
  is_beginning_ = false;
  run_step(1'000'000);
  EXPECT_EQ(run_step(1), 0);
}

TEST_F(StepPlansTest, TrialThatHasBegunGoesOnAfterTheBeginning) {
  run_steps(kPlanned, 1);
  EXPECT_GT(run_steps(2, 1), 0) << "on trial";
  is_beginning_ = false;
  EXPECT_GT(run_steps(kSettled, 1), 0);
}

TEST_F(StepPlansTest, WhatHadNothingToGainIsPlannedAnewAtTheBeginningOnly) {
  for (const bool is_late : {false, true}) {
    is_beginning_ = true;
    kernels_ = 1e-7;
    const uint64_t first_op = is_late ? 1 : 100'000;
    run_steps(kPlanned + 1, first_op); // kept whole
    kernels_ = kKernels;
    is_beginning_ = !is_late;
    EXPECT_EQ(run_steps(StepPlans::kRetrials[0] + kSettled, first_op) == 0, is_late);
  }
}

TEST_F(StepPlansTest, WhatWasKeptWholeIsCutOnTrialAtTheBeginningOnly) {
  for (const bool is_late : {false, true}) {
    is_beginning_ = true;
    const uint64_t first_op = is_late ? 1 : 100'000;
    run_steps(kSettled, first_op, /*cut_gain=*/-1);
    is_beginning_ = !is_late;
    EXPECT_EQ(run_steps(StepPlans::kRetrials[0] + kSettled, first_op) == 0, is_late);
  }
}

// Its graphs are to be compiled while a program begins.
TEST_F(StepPlansTest, StepThatComesNowAndThenIsPlannedWhenItHasComeTwice) {
  EXPECT_EQ(run_steps(3, 10'000), 0);
  size_t cuts = 0;
  for (size_t i = 0; i < 3; ++i) {
    cuts = run_step(1);
    for (size_t j = 0; j <= StepPlans::kNear; ++j) {
      run_step(1'000'000, 0.3, 1);
    }
  }
  EXPECT_GT(cuts, 0);
}

TEST_F(StepPlansTest, WhatAWorkerMayNotComputeIsNotCut) {
  may_overlap_ = false;
  EXPECT_EQ(run_steps(2 * kSettled, 1), 0);
}

TEST_F(StepPlansTest, DisturbedStepsTeachNothing) {
  for (size_t i = 0; i < 2 * kSettled; ++i) {
    plans_.note(1, true);
    plans_.disturb();
    EXPECT_EQ(plans_.end_step(), 0);
  }
  EXPECT_FALSE(plans_.cuts_here());
}

TEST_F(StepPlansTest, NewStepsTakeThePlaceOfTheOldest) {
  for (uint64_t i = 0; i < 3 * StepPlans::kMaxSteps; ++i) {
    run_steps(2, 10'000 * (i + 1));
  }
  EXPECT_GT(run_steps(kSettled, 1), 0) << "further ones are planned, too";
}

TEST_F(StepPlansTest, StepThatGoesOnKeepsItsPlan) {
  run_steps(kSettled + StepPlans::kRetrials[2], 1);
  const size_t cuts = run_step(1);
  ASSERT_GT(cuts, 1);
  const size_t timed = num_timed_;
  for (uint64_t i = 0; i < 3 * StepPlans::kMaxSteps; ++i) {
    run_step(10'000 * (i + 1));
    run_step(1);
  }
  EXPECT_EQ(run_step(1), cuts);
  EXPECT_EQ(num_timed_, timed) << "nor does one that comes once cost anything";
}

TEST_F(StepPlansTest, CutsOfAForgottenStepAreMadeNoMore) {
  ASSERT_GT(run_steps(kSettled, 1), 0);
  for (uint64_t i = 0; i < 3 * StepPlans::kMaxSteps; ++i) {
    run_step(10'000 * (i + 1));
  }
  EXPECT_EQ(run_step(1), 0);
}

TEST_F(StepPlansTest, AllReadsAtTheEndOfAStepAreAwaited) {
  const auto last_cut = [this](uint64_t first_op, size_t also_awaited) {
    size_t last = 0;
    for (size_t i = 0; i < kPlanned + 2; ++i) {
      last = 0;
      for (size_t op = 0; op < 100; ++op) {
        now_ += 3e-6;
        plans_.note(first_op + op, true);
        last = plans_.cuts_here() ? op + 1 : last;
      }
      if (const auto timed = plans_.end_step(30); timed != 0) {
        plans_.note_kernels(timed, std::vector<float>(100, 1e-6F), 5e-6);
      }
      plans_.note_result();
      plans_.note_also_awaited(also_awaited);
    }
    return last;
  };
  EXPECT_EQ(last_cut(1, 0), 30);
  EXPECT_EQ(last_cut(1'000, 60), 60);
  EXPECT_EQ(last_cut(2'000, 100), 0) << "nothing is left to be computed meanwhile";
}

TEST_F(StepPlansTest, SettledStepsAreTimedNoMore) {
  run_steps(kSettled + 2, 1);
  const size_t before = num_timed_;
  run_steps(50, 1);
  EXPECT_EQ(num_timed_, before);
}

} // namespace
} // namespace lazyplug
