#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <thread>

#include "device/event.h"
#include "device/stream.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

// Makes a stream current for its lifetime.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream) : previous_(exchange_stream(stream)) {}
  ~OnStream() {
    exchange_stream(previous_);
  }

 private:
  const c10::Stream previous_;
};

class StreamsTest : public BackendTest {
 protected:
  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
  const c10::Stream main_ = default_stream(0);
  const c10::Stream side_ = new_stream(0, 0);
  DeviceContext& context_ = DeviceContext::get(0);
};

TEST_F(StreamsTest, EachStreamHasATraceOfItsOwn) {
  const at::Tensor here = x + 1;
  at::Tensor there;
  {
    const OnStream on(side_);
    there = x + 2;
  }
  expect_equal(there, cpu + 2);
  EXPECT_EQ(state_of(here), State::kPending);
  expect_equal(here, cpu + 1);
}

TEST_F(StreamsTest, ReaderOfAnotherStreamsTensorGetsItsData) {
  const at::Tensor here = x + 1;
  const OnStream on(side_);
  const at::Tensor there = here * 2;
  EXPECT_NE(state_of(here), State::kPending);
  expect_equal(there, (cpu + 1) * 2);
}

TEST_F(StreamsTest, WriteOnOneStreamLeavesWhatAnotherHasReadBefore) {
  at::Tensor shared = to_lazy(cpu);
  const at::Tensor read_before = shared + 1;
  {
    const OnStream on(side_);
    shared.mul_(10);
  }
  const at::Tensor read_after = shared + 1;
  expect_equal(read_before, cpu + 1);
  expect_equal(read_after, cpu * 10 + 1);
  expect_equal(shared, cpu * 10);
}

TEST_F(StreamsTest, StreamsRunAtTheSameTime) {
  const at::Tensor held = test_ops::wait(x);
  test_ops::Gate gate;
  context_.flush();
  gate.await_arrival();
  {
    const OnStream on(side_);
    expect_equal(x + 1, cpu + 1); // while the other stream stands still
  }
  gate.open();
  expect_equal(held, cpu);
}

TEST_F(StreamsTest, DataOfAStreamThatStandsStillIsWaitedForByTheQueue) {
  const at::Tensor held = test_ops::wait(x);
  test_ops::Gate gate;
  context_.flush();
  gate.await_arrival();
  at::Tensor there;
  {
    const OnStream on(side_);
    there = held + 1; // returns at once
    context_.flush_stream(side_.id());
  }
  gate.open();
  expect_equal(there, cpu + 1);
}

TEST_F(StreamsTest, EventBlocksAnotherStream) {
  const at::Tensor held = test_ops::wait(x);
  test_ops::Gate gate;
  Event event(/*timing=*/false);
  event.record(main_);
  event.block(side_);
  gate.await_arrival(); // blocking has started the stream that is waited for
  const OnStream on(side_);
  const at::Tensor later = x + 1;
  context_.flush_stream(side_.id());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(context_.completed(side_.id()), context_.recorded(side_.id()));
  EXPECT_FALSE(event.query());
  gate.open();
  expect_equal(later, cpu + 1);
  EXPECT_TRUE(event.query());
}

TEST_F(StreamsTest, ErrorsBelongToTheirStream) {
  const at::Tensor fine = x + 1;
  {
    const OnStream on(side_);
    const at::Tensor failed = test_ops::fail(x);
    context_.synchronize_stream(main_.id(), context_.recorded(main_.id()));
    EXPECT_THROW(synchronize_stream(side_), c10::IndexError);
    EXPECT_THROW(failed.cpu(), c10::IndexError);
  }
  expect_equal(fine, cpu + 1);
}

TEST_F(StreamsTest, FailedDataSpoilsItsReadersOnOtherStreams) {
  test_ops::Gate gate; // so that the failure is not known when it is read
  const at::Tensor failed = test_ops::fail(test_ops::wait(x));
  at::Tensor reader;
  at::Tensor other;
  {
    const OnStream on(side_);
    reader = failed + 1;
    other = x + 2;
  }
  gate.open();
  EXPECT_THROW(reader.cpu(), c10::IndexError);
  expect_equal(other, cpu + 2);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none") << "somebody has seen it";
}

TEST_F(StreamsTest, RecordingGoesOnWhileAQueuedWriteRuns) {
  at::Tensor value = to_lazy(cpu);
  for (int step = 0; step < 50; ++step) {
    value.add_(1);
    context_.flush(); // each step is a job of its own, and reads what the last one computes
  }
  expect_equal(value, cpu + 50);
}

} // namespace
} // namespace lazyplug
