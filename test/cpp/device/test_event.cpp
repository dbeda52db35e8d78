#include "device/event.h"

#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lazyplug {
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);

TEST(Event, RecordingStartsNothing) {
  FakeExecutor executor;
  executor.record_op(0);
  Event event(/*timing=*/true);
  event.record(0);
  EXPECT_EQ(executor.completed[0], 0);
  EXPECT_TRUE(executor.flushed.empty());
  EXPECT_TRUE(executor.synchronized.empty());
}

TEST(Event, NewEventIsReached) {
  FakeExecutor executor;
  Event event(/*timing=*/false);
  EXPECT_TRUE(event.query());
  event.synchronize();
  EXPECT_TRUE(executor.synchronized.empty());
}

TEST(Event, QueryStartsTheWork) {
  FakeExecutor executor;
  executor.runs_on_flush = false;
  executor.record_op(1);
  Event event(/*timing=*/false);
  event.record(1);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(executor.flushed, std::vector<c10::DeviceIndex>({1}));
  executor.run_all(1);
  EXPECT_TRUE(event.query());
  EXPECT_EQ(executor.flushed.size(), 1);
}

TEST(Event, LaterWorkIsNotItsBusiness) {
  FakeExecutor executor;
  executor.record_op(0);
  Event event(/*timing=*/false);
  event.record(0);
  executor.run_all(0);
  executor.record_op(0);
  EXPECT_TRUE(event.query());
  event.synchronize();
  EXPECT_TRUE(executor.flushed.empty());
  EXPECT_TRUE(executor.synchronized.empty());
}

TEST(Event, SynchronizeWaitsForItsDevice) {
  FakeExecutor executor;
  executor.record_op(0);
  executor.record_op(2);
  Event event(/*timing=*/false);
  event.record(2);
  event.synchronize();
  EXPECT_EQ(executor.synchronized, std::vector<c10::DeviceIndex>({2}));
  EXPECT_EQ(executor.completed[0], 0);
}

TEST(Event, RecordingAgainMovesIt) {
  FakeExecutor executor;
  Event event(/*timing=*/false);
  event.record(0);
  executor.runs_on_flush = false;
  executor.record_op(0);
  event.record(0);
  EXPECT_FALSE(event.query());
}

TEST(Event, ElapsedTimeCoversTheExecution) {
  FakeExecutor executor;
  Event start(/*timing=*/true);
  Event end(/*timing=*/true);
  start.record(0);
  executor.record_op(0);
  end.record(0);
  std::this_thread::sleep_for(kPause);
  executor.run_all(0);
  EXPECT_GE(elapsed_ms(start, end), kPause.count());
  EXPECT_LE(elapsed_ms(end, start), -kPause.count());
}

TEST(Event, ElapsedTimeNeedsTiming) {
  FakeExecutor executor;
  Event start(/*timing=*/true);
  Event end(/*timing=*/false);
  start.record(0);
  end.record(0);
  EXPECT_THROW(elapsed_ms(start, end), c10::ValueError);
}

TEST(Event, ElapsedTimeNeedsReachedEvents) {
  FakeExecutor executor;
  Event start(/*timing=*/true);
  Event end(/*timing=*/true);
  start.record(0);
  executor.record_op(0);
  end.record(0);
  EXPECT_THROW(elapsed_ms(start, end), c10::Error);
}

TEST(Event, DestroyedEventGetsNoTime) {
  FakeExecutor executor;
  executor.record_op(0);
  {
    Event event(/*timing=*/true);
    event.record(0);
  }
  executor.run_all(0);
}

TEST(Event, StampingMeetsConcurrentRecording) {
  FakeExecutor executor;
  std::thread recorder([] {
    for (int i = 0; i < 1000; ++i) {
      Event event(/*timing=*/true);
      event.record(0);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    stamp_reached_events(0);
  }
  recorder.join();
}

} // namespace
} // namespace lazyplug
