#include "common/fail_point.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class FailPoints : public BackendTest, public testing::WithParamInterface<FailPoint> {
 protected:
  void TearDown() override {
    arm(FailPoint::kNone);
  }

  const at::Tensor x = to_lazy(iota({2, 3}));
  const at::Tensor cpu = iota({2, 3});
};

constexpr const char* kMessage = "injected failure";

TEST_P(FailPoints, TheReaderIsToldAndTheNextStepWorks) {
  const at::Tensor untouched = x * 5;
  context_.synchronize();
  const at::Tensor y = x + 1;
  const at::Tensor z = x * 2;
  arm(GetParam());
  EXPECT_TRUE(contains(error_of([&] { y.cpu(); }), kMessage));
  EXPECT_EQ(armed_fail_point, FailPoint::kNone);
  expect_equal(untouched, cpu * 5);
  expect_equal(x + 1, cpu + 1);
  if (GetParam() == FailPoint::kDelivery || GetParam() == FailPoint::kAllocation) {
    expect_equal(z, cpu * 2); // its own succeeded
  } else {
    EXPECT_TRUE(contains(error_of([&] { z.cpu(); }), kMessage));
  }
}

TEST_P(FailPoints, OnTheWorkerTheErrorWaitsForWhoeverWaits) {
  const at::Tensor y = x + 1;
  arm(GetParam());
  context_.flush();
  while (armed_fail_point != FailPoint::kNone) {
  }
  const at::Tensor z = x * 3; // recorded while the failure is on its way
  EXPECT_TRUE(contains(error_of([&] { context_.synchronize(); }), kMessage));
  expect_equal(z, cpu * 3);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none") << "it is raised once";
}

TEST_P(FailPoints, LaterJobsInheritIt) {
  const at::Tensor y = x + 1;
  arm(GetParam());
  context_.flush();
  // While it is recorded, if the job has failed by then, or when it is read.
  EXPECT_TRUE(contains(error_of([&] { (y * 2).cpu(); }), kMessage));
  const at::Tensor independent = x * 2;
  expect_equal(independent, cpu * 2);
}

TEST_P(FailPoints, AWrittenTensorHealsWhenItIsOverwritten) {
  at::Tensor y = x.clone();
  context_.synchronize();
  // Read elsewhere, so that a copy is written.
  const c10::Storage read = DeviceContext::materialize(storage_of(y));
  y.add_(1);
  arm(GetParam());
  EXPECT_TRUE(contains(error_of([&] { y.cpu(); }), kMessage));
  y.copy_(cpu);
  expect_equal(y + 1, cpu + 1);
}

// A step that runs in chunks while it is recorded: whatever happens to one of
// them, each result is right or tells why not, and somebody is told once.
class FailingSteps : public FailPoints {
 protected:
  struct Result {
    at::Tensor lazy;
    at::Tensor expected;
  };

  // Records chains that reach into the next chunk, and waits. Each value is kept: were the products
  // temporaries, a cut between a product and its sum could lose nothing else.
  std::vector<Result> step() {
    std::vector<Result> results;
    num_raised_ = 0;
    for (int i = 0; i < 40; ++i) {
      const Result before = i % 8 == 0 ? Result{x, cpu} : results.back();
      // A failure that is known by now raises here, and the program goes on with something else.
      const bool raised = raises([&] {
        results.push_back({before.lazy.mul(2), before.expected * 2});
        results.push_back({results.back().lazy.add(x), results.back().expected + cpu});
      });
      if (raised) {
        results.push_back({x.mul(3).add(x), cpu * 4});
      }
    }
    raises([&] { context_.synchronize(); });
    return results;
  }
  template <typename Call>
  bool raises(Call call) {
    const std::string error = error_of(call);
    num_raised_ += error != "none";
    return contains(error, kMessage);
  }

  // Fails after so many passes of the point.
  void check(int passes) {
    reset_metrics();
    arm(GetParam(), passes);
    int num_lost = 0;
    for (const Result& result : step()) {
      const std::string error = error_of([&] { expect_equal(result.lazy, result.expected); });
      EXPECT_TRUE(error == "none" || contains(error, kMessage)) << error;
      num_lost += error != "none";
    }
    EXPECT_EQ(armed_fail_point, FailPoint::kNone) << "it has happened";
    EXPECT_EQ(num_raised_, 1);
    EXPECT_GE(num_lost, 1);
    EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none");
    for (const Result& result : step()) {
      expect_equal(result.lazy, result.expected);
    }
    EXPECT_EQ(num_raised_, 0);
  }

  int num_raised_ = 0;
};

TEST_P(FailingSteps, RunInChunks) {
  const ScopedFlag<int64_t> ops(config().chunk_nodes, 12);
  step(); // ends in a wait: how long a step is, is known from now on
  for (int passes : {0, 3, 5}) {
    check(passes);
    EXPECT_EQ(count("Sync/trace full"), 2 * 5) << "and the rest";
  }
}

TEST_P(FailingSteps, AreCutAnywhere) {
  for (const char* text : {"never", "every:1", "every:7", "random:2"}) {
    const ScopedFlag<std::string> schedule(config().schedule, text);
    step();
    check(/*passes=*/0);
    if (text != std::string("never")) {
      check(/*passes=*/5);
      EXPECT_GE(count("Sync/trace full"), 2 * 80 / 32) << text;
    }
  }
}

constexpr auto kPoints =
    {FailPoint::kAllocation, FailPoint::kCompile, FailPoint::kInputs, FailPoint::kRun, FailPoint::kDelivery};

INSTANTIATE_TEST_SUITE_P(EveryPoint, FailPoints, testing::ValuesIn(kPoints));
INSTANTIATE_TEST_SUITE_P(EveryPoint, FailingSteps, testing::ValuesIn(kPoints));

} // namespace
} // namespace lazyplug
