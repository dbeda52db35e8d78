// A step in chunks of which one fails, at each point of the pipeline, whoever runs them: nothing is lost but what
// depends on the failure, nothing hangs, the failure is handed out once, and the next step works.
#include "common/fail_point.h"

#include <thread>

#include "test/cpp/backend/stream_test.h"

namespace lazyplug {
namespace {

enum class Runner { kWaitingThread, kWorker, kOtherStreamsWorker };

class FailingChunks : public StreamTest, public testing::WithParamInterface<std::tuple<FailPoint, Runner>> {
 protected:
  static constexpr int kChunks = 5;

  void TearDown() override {
    arm(FailPoint::kNone);
  }

  // Of each chunk: the next number of a chain through all of them, and one that
  // depends on nothing.
  struct Step {
    std::vector<at::Tensor> chain;
    std::vector<at::Tensor> own;
    at::Tensor reader; // on the other stream, of the end of the chain
    at::Tensor bystander;
  };

  // All chunks are queued before the first one runs.
  Step run_step() {
    Step step;
    Worker::Ticket last = 0;
    for (int i = 0; i < kChunks; ++i) {
      step.chain.push_back(add(i == 0 ? x : step.chain.back(), x));
      step.own.push_back(add(x, x));
      last = stream_.submit(runner_ == Runner::kWorker && i == kChunks - 1);
    }
    if (runner_ == Runner::kOtherStreamsWorker) {
      step.reader = add(other_, step.chain.back(), x);
      step.bystander = add(other_, x, x);
      await(other_, other_.submit(/*wake=*/true));
    } else if (runner_ == Runner::kWorker) {
      await(stream_, last);
    } else {
      stream_.worker().wait(last);
    }
    return step;
  }
  // Waits without working.
  static void await(StreamContext& stream, Worker::Ticket ticket) {
    while (!stream.worker().has_run(ticket)) {
      std::this_thread::yield();
    }
  }

  // Makes the chunk fail; where results fail one by one, its part of the chain.
  void arm_chunk(int chunk) {
    const bool whole = fails_as_a_whole();
    // The other stream's job has passed these points before it waits for the chunks.
    const bool other_first =
        runner_ == Runner::kOtherStreamsWorker && (point_ == FailPoint::kCompile || point_ == FailPoint::kInputs);
    arm(point_, (whole ? chunk : 2 * chunk) + (other_first ? 1 : 0));
  }
  bool fails_as_a_whole() const {
    return point_ != FailPoint::kAllocation && point_ != FailPoint::kDelivery;
  }

  static void expect(const at::Tensor& result, const at::Tensor& expected, bool fails) {
    if (fails) {
      EXPECT_TRUE(contains(error_of([&] { result.cpu(); }), "injected failure"));
    } else {
      expect_equal(result, expected);
    }
  }
  // Which fails: no chunk if it is negative.
  void check(const Step& step, int failed) {
    for (int i = 0; i < kChunks; ++i) {
      expect(step.chain[i], cpu * (i + 2), failed >= 0 && i >= failed);
      expect(step.own[i], cpu * 2, i == failed && fails_as_a_whole());
    }
    if (runner_ == Runner::kOtherStreamsWorker) {
      expect(step.reader, cpu * (kChunks + 2), failed >= 0);
      expect(step.bystander, cpu * 2, false);
    }
  }

  const FailPoint point_ = std::get<0>(GetParam());
  const Runner runner_ = std::get<1>(GetParam());
};

TEST_P(FailingChunks, NothingElseIsLostAndTheNextStepWorks) {
  for (int failed : {0, 2, kChunks - 1}) {
    arm_chunk(failed);
    const Step step = run_step();
    EXPECT_EQ(armed_fail_point, FailPoint::kNone) << "it has happened";
    EXPECT_EQ(stream_.completed(), stream_.recorded());
    check(step, failed);
    check(run_step(), -1);
  }
}

TEST_P(FailingChunks, TheFailureIsHandedOutOnce) {
  arm_chunk(1);
  const Step step = run_step();
  const FailurePtr failure = stream_.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_FALSE(failure->seen);
  EXPECT_EQ(stream_.take_failure(), nullptr);
  EXPECT_EQ(other_.take_failure(), nullptr) << "its results are spoiled, but nothing failed there";
  check(step, 1);
  EXPECT_TRUE(failure->seen) << "all that it spoiled share it";
}

INSTANTIATE_TEST_SUITE_P(
    EveryPointAndRunner,
    FailingChunks,
    testing::Combine(
        testing::Values(
            FailPoint::kAllocation,
            FailPoint::kCompile,
            FailPoint::kInputs,
            FailPoint::kRun,
            FailPoint::kDelivery),
        testing::Values(Runner::kWaitingThread, Runner::kWorker, Runner::kOtherStreamsWorker)));

} // namespace
} // namespace lazyplug
