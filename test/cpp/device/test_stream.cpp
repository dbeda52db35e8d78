#include "device/stream.h"

#include "device/runtime.h"
#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace lazyplug {
namespace {

c10::Stream stream_with_id(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, lazy_device(0), id);
}

TEST(Stream, DefaultStreamIsCurrentAtFirst) {
  EXPECT_EQ(current_stream(1), default_stream(1));
  EXPECT_EQ(default_stream(1).device(), lazy_device(1));
  EXPECT_NE(default_stream(0), default_stream(1));
}

TEST(Stream, MissingIndexMeansCurrentDevice) {
  set_device(2);
  EXPECT_EQ(default_stream(-1).device_index(), 2);
  EXPECT_EQ(new_stream(-1, 0).device_index(), 2);
  set_device(0);
}

TEST(Stream, ExchangeKeepsCurrentDevice) {
  const c10::Stream mine = new_stream(1, 0);
  EXPECT_EQ(exchange_stream(mine), default_stream(1));
  EXPECT_EQ(current_stream(1), mine);
  EXPECT_EQ(current_stream(0), default_stream(0));
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(exchange_stream(default_stream(1)), mine);
}

TEST(Stream, CurrentStreamIsThreadLocal) {
  exchange_stream(new_stream(0, 0));
  std::thread([] { EXPECT_EQ(current_stream(0), default_stream(0)); }).join();
  exchange_stream(default_stream(0));
}

TEST(Stream, PoolHandsOutDistinctStreamsThenStartsOver) {
  std::set<c10::StreamId> ids;
  const c10::StreamId first = new_stream(0, 0).id();
  ids.insert(first);
  for (int i = 1; i < kStreamsPerPriority; ++i) {
    ids.insert(new_stream(0, 0).id());
  }
  EXPECT_EQ(ids.size(), kStreamsPerPriority);
  EXPECT_FALSE(ids.contains(default_stream(0).id()));
  EXPECT_EQ(new_stream(0, 0).id(), first);
}

TEST(Stream, PrioritiesHavePoolsOfTheirOwn) {
  std::set<c10::StreamId> ids;
  for (int i = 0; i < kStreamsPerPriority; ++i) {
    ids.insert(new_stream(0, 0).id());
    ids.insert(new_stream(0, -1).id());
  }
  EXPECT_EQ(ids.size(), 2 * kStreamsPerPriority);
  for (c10::StreamId id : ids) {
    check_stream(stream_with_id(id));
  }
}

TEST(Stream, UnknownStreamRaises) {
  EXPECT_THROW(exchange_stream(stream_with_id(-1)), c10::Error);
  EXPECT_THROW(exchange_stream(stream_with_id(1 + 2 * kStreamsPerPriority)), c10::Error);
  EXPECT_THROW(check_stream(c10::Stream(c10::Stream::DEFAULT, c10::Device("cpu"))), c10::Error);
}

TEST(Stream, UnknownDeviceRaises) {
  EXPECT_THROW(current_stream(kTestDevices), c10::Error);
  EXPECT_THROW(new_stream(kTestDevices, 0), c10::Error);
  EXPECT_THROW(synchronize_device(kTestDevices), c10::Error);
}

TEST(Stream, SynchronizeWaitsForItself) {
  FakeExecutor executor;
  const c10::Stream stream = new_stream(1, 0);
  executor.record_op(stream);
  synchronize_stream(stream);
  EXPECT_EQ(executor.synchronized_streams, std::vector<c10::Stream>({stream}));
  EXPECT_EQ(executor.places(stream).completed, 1);
  synchronize_device(2);
  EXPECT_EQ(executor.synchronized, std::vector<c10::DeviceIndex>({2}));
}

TEST(Stream, QueryStartsTheWork) {
  FakeExecutor executor;
  const c10::Stream stream = default_stream(0);
  EXPECT_TRUE(query_stream(stream));
  EXPECT_TRUE(executor.flushed.empty());
  executor.runs_on_flush = false;
  executor.record_op(stream);
  EXPECT_FALSE(query_stream(stream));
  EXPECT_EQ(executor.flushed, std::vector<c10::Stream>({stream}));
  executor.run_all(stream);
  EXPECT_TRUE(query_stream(stream));
}

} // namespace
} // namespace lazyplug
