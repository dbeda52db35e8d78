#include "device/callbacks.h"

#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(Callbacks, RegisteredOnesAreCalled) {
  FakeExecutor executor;
  const c10::Stream stream = test_stream(1);
  executor.record_op(stream);
  EXPECT_EQ(device_callbacks().recorded_place(stream), 1);
  EXPECT_EQ(device_callbacks().completed_place(stream), 0);
  device_callbacks().synchronize_stream(stream, 1);
  EXPECT_EQ(device_callbacks().completed_place(stream), 1);
}

TEST(Callbacks, MissingMemberIsOurBug) {
  EXPECT_THROW(set_device_callbacks(DeviceCallbacks()), c10::Error);
}

TEST(Callbacks, DefaultsAreADeviceWithoutWork) {
  const DeviceCallbacks defaults;
  defaults.synchronize(0);
  const c10::Stream stream = test_stream(0);
  defaults.flush(stream);
  EXPECT_EQ(defaults.recorded_place(stream), defaults.completed_place(stream));
}

} // namespace
} // namespace lazyplug
