#include "device/event.h"

#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lazyplug {
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);

class EventTest : public testing::Test {
 protected:
  FakeExecutor executor_;
  const c10::Stream stream_ = test_stream(0);
  const c10::Stream side_ = test_stream(0, 1);
};

TEST_F(EventTest, RecordingStartsNothing) {
  executor_.record_op(stream_);
  Event event(/*timing=*/false);
  event.record(stream_);
  EXPECT_EQ(executor_.places(stream_).completed, 0);
  EXPECT_TRUE(executor_.flushed.empty());
}

TEST_F(EventTest, TimingStartsTheWorkSoThatTheTimeIsThatOfThePlace) {
  executor_.record_op(stream_);
  Event event(/*timing=*/true);
  event.record(stream_);
  EXPECT_EQ(executor_.flushed, std::vector<c10::Stream>({stream_}));
}

TEST_F(EventTest, NewEventIsReached) {
  Event event(/*timing=*/false);
  EXPECT_TRUE(event.query());
  event.synchronize();
  event.block(side_);
  EXPECT_TRUE(executor_.synchronized_streams.empty());
  EXPECT_TRUE(executor_.waits.empty());
}

TEST_F(EventTest, QueryStartsTheWork) {
  executor_.runs_on_flush = false;
  executor_.record_op(stream_);
  Event event(/*timing=*/false);
  event.record(stream_);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(executor_.flushed, std::vector<c10::Stream>({stream_}));
  executor_.run_all(stream_);
  EXPECT_TRUE(event.query());
  EXPECT_EQ(executor_.flushed.size(), 1);
}

TEST_F(EventTest, LaterWorkIsNotItsBusiness) {
  executor_.record_op(stream_);
  Event event(/*timing=*/false);
  event.record(stream_);
  executor_.run_all(stream_);
  executor_.record_op(stream_);
  EXPECT_TRUE(event.query());
  event.synchronize();
  EXPECT_TRUE(executor_.flushed.empty());
  EXPECT_EQ(executor_.places(stream_).completed, 1);
}

TEST_F(EventTest, SynchronizeWaitsForItsStreamOnly) {
  executor_.record_op(stream_);
  executor_.record_op(side_);
  Event event(/*timing=*/false);
  event.record(side_);
  event.synchronize();
  EXPECT_EQ(executor_.synchronized_streams, std::vector<c10::Stream>({side_}));
  EXPECT_EQ(executor_.places(stream_).completed, 0);
}

TEST_F(EventTest, BlockMakesTheOtherStreamWaitForThePlace) {
  executor_.record_op(stream_);
  Event event(/*timing=*/false);
  event.record(stream_);
  executor_.record_op(stream_);
  event.block(side_);
  EXPECT_EQ(executor_.waits, std::vector<FakeExecutor::Wait>({{side_, stream_, 1}}));
  EXPECT_EQ(executor_.places(stream_).completed, 0);
}

TEST_F(EventTest, ReachedEventBlocksNobody) {
  Event event(/*timing=*/false);
  event.record(stream_);
  event.block(side_);
  EXPECT_TRUE(executor_.waits.empty());
}

TEST_F(EventTest, RecordingAgainMovesIt) {
  Event event(/*timing=*/false);
  event.record(stream_);
  executor_.runs_on_flush = false;
  executor_.record_op(side_);
  event.record(side_);
  EXPECT_FALSE(event.query());
}

TEST_F(EventTest, ElapsedTimeIsThatOfTheExecution) {
  executor_.runs_on_flush = false;
  Event start(/*timing=*/true);
  Event end(/*timing=*/true);
  start.record(stream_);
  executor_.record_op(stream_);
  end.record(stream_);
  std::this_thread::sleep_for(kPause);
  executor_.run_all(stream_);
  EXPECT_GE(elapsed_ms(start, end), kPause.count());
  EXPECT_LE(elapsed_ms(end, start), -kPause.count());
}

TEST_F(EventTest, WhoGoesOnBecauseItIsReachedIsLater) {
  using Look = void (*)(Event&, c10::Stream);
  const Look looks[] = {
      [](Event& event, c10::Stream side) { event.block(side); },
      [](Event& event, c10::Stream) { EXPECT_TRUE(event.query()); },
      [](Event& event, c10::Stream) { event.synchronize(); }};
  for (const Look look : looks) {
    executor_.runs_on_flush = false;
    executor_.record_op(stream_);
    Event earlier(/*timing=*/true);
    earlier.record(stream_);
    executor_.places(stream_).completed = executor_.places(stream_).recorded; // counted, and no time given yet
    look(earlier, side_);
    Event later(/*timing=*/true);
    later.record(side_);
    std::this_thread::sleep_for(kPause);
    EXPECT_GE(elapsed_ms(earlier, later), 0);
  }
}

TEST_F(EventTest, ElapsedTimeNeedsTiming) {
  Event start(/*timing=*/true);
  Event end(/*timing=*/false);
  start.record(stream_);
  end.record(stream_);
  EXPECT_THROW(elapsed_ms(start, end), c10::ValueError);
}

TEST_F(EventTest, ElapsedTimeNeedsReachedEvents) {
  executor_.runs_on_flush = false;
  Event start(/*timing=*/true);
  Event end(/*timing=*/true);
  start.record(stream_);
  executor_.record_op(stream_);
  end.record(stream_);
  EXPECT_THROW(elapsed_ms(start, end), c10::Error);
}

TEST_F(EventTest, DestroyedEventGetsNoTime) {
  executor_.runs_on_flush = false;
  executor_.record_op(stream_);
  {
    Event event(/*timing=*/true);
    event.record(stream_);
  }
  executor_.run_all(stream_);
}

} // namespace
} // namespace lazyplug
