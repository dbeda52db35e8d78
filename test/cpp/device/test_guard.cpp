#include "device/guard.h"

#include "device/runtime.h"
#include "device/stream.h"
#include "test/cpp/device/fake_executor.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

namespace lazyplug {
namespace {

// Everything below goes through PyTorch's own classes, to see that the registered guard is what they expect.

TEST(Guard, DeviceGuardRestoresTheDevice) {
  {
    const c10::DeviceGuard guard(lazy_device(2));
    EXPECT_EQ(current_device(), 2);
  }
  EXPECT_EQ(current_device(), 0);
}

TEST(Guard, DeviceGuardRefusesUnknownDevices) {
  EXPECT_THROW(c10::DeviceGuard{lazy_device(99)}, c10::Error);
  EXPECT_EQ(current_device(), 0);
}

TEST(Guard, StreamGuardRestoresTheStream) {
  const c10::Stream stream = new_stream(1, 0);
  {
    const c10::StreamGuard guard(stream);
    EXPECT_EQ(current_stream(1), stream);
    EXPECT_EQ(current_device(), 1);
  }
  EXPECT_EQ(current_stream(1), default_stream(1));
  EXPECT_EQ(current_device(), 0);
}

TEST(Guard, NativeHandlesTellStreamsApart) {
  const LazyGuardImpl guard;
  EXPECT_EQ(guard.getStreamNativeHandle(default_stream(0)), nullptr);
  EXPECT_NE(guard.getStreamNativeHandle(new_stream(0, 0)), guard.getStreamNativeHandle(new_stream(0, 0)));
}

TEST(Guard, CommonDtypesAreSupported) {
  std::set<c10::ScalarType> dtypes;
  LazyGuardImpl().getDeviceCapability(lazy_device(0)).forEachSupportedScalarType([&](c10::ScalarType dtype) {
    dtypes.insert(dtype);
  });
  for (c10::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kBool}) {
    EXPECT_TRUE(dtypes.contains(dtype)) << dtype;
  }
}

TEST(Guard, DeviceSynchronizeReachesTheExecutor) {
  FakeExecutor executor;
  LazyGuardImpl().synchronizeDevice(1);
  default_stream(2).synchronize();
  EXPECT_EQ(executor.synchronized, std::vector<c10::DeviceIndex>({1}));
  EXPECT_EQ(executor.synchronized_streams, std::vector<c10::Stream>({default_stream(2)}));
}

TEST(Guard, EventLife) {
  FakeExecutor executor;
  c10::Event event(kLazyDevice);
  EXPECT_TRUE(event.query());
  executor.record_op(default_stream(1));
  event.record(default_stream(1));
  EXPECT_EQ(event.device_index(), 1);
  EXPECT_TRUE(executor.flushed.empty());
  event.block(new_stream(1, 0));
  EXPECT_EQ(executor.waits.size(), 1);
  event.synchronize();
  EXPECT_EQ(executor.places(default_stream(1)).completed, 1);
  EXPECT_TRUE(event.query());
}

TEST(Guard, EventStaysOnItsDevice) {
  FakeExecutor executor;
  c10::Event event(kLazyDevice);
  event.record(default_stream(1));
  EXPECT_THROW(event.record(default_stream(0)), c10::Error);
  event.record(default_stream(1));
}

TEST(Guard, TimingEvents) {
  FakeExecutor executor;
  c10::Event start(kLazyDevice, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(kLazyDevice, c10::EventFlag::BACKEND_DEFAULT);
  start.record(default_stream(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end.record(default_stream(0));
  EXPECT_GE(start.elapsedTime(end), 5);
}

TEST(Guard, EventsWithoutTimingHaveNoElapsedTime) {
  FakeExecutor executor;
  c10::Event start(kLazyDevice);
  c10::Event end(kLazyDevice);
  start.record(default_stream(0));
  end.record(default_stream(0));
  EXPECT_THROW(start.elapsedTime(end), c10::ValueError);
}

TEST(Guard, UnknownEventFlagRaises) {
  c10::Event event(kLazyDevice, c10::EventFlag::INVALID);
  EXPECT_THROW(event.record(default_stream(0)), c10::Error);
}

} // namespace
} // namespace lazyplug
