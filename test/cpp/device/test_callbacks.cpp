#include "device/callbacks.h"

#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(Callbacks, RegisteredOnesAreCalled) {
  FakeExecutor executor;
  executor.record_op(1);
  EXPECT_EQ(device_callbacks().recorded_place(1), 1);
  EXPECT_EQ(device_callbacks().completed_place(1), 0);
  device_callbacks().synchronize(1);
  EXPECT_EQ(device_callbacks().completed_place(1), 1);
}

TEST(Callbacks, MissingMemberIsOurBug) {
  EXPECT_THROW(set_device_callbacks(DeviceCallbacks()), c10::Error);
}

TEST(Callbacks, DefaultsAreADeviceWithoutWork) {
  const DeviceCallbacks defaults;
  defaults.synchronize(0);
  defaults.flush(0);
  EXPECT_EQ(defaults.recorded_place(0), defaults.completed_place(0));
}

} // namespace
} // namespace lazyplug
