#include "device/runtime.h"

#include "test/cpp/device/fake_executor.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lazyplug {
namespace {

TEST(Runtime, CountComesFromTheConfiguration) {
  EXPECT_EQ(device_count(), kTestDevices);
  EXPECT_EQ(device_count_or_zero(), kTestDevices);
}

TEST(Runtime, ExchangeReturnsThePreviousDevice) {
  set_device(1);
  EXPECT_EQ(exchange_device(2), 1);
  EXPECT_EQ(current_device(), 2);
  EXPECT_EQ(exchange_device(0), 2);
}

TEST(Runtime, MaybeExchangeIgnoresNegativeIndices) {
  set_device(1);
  EXPECT_EQ(maybe_exchange_device(-1), 1);
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(maybe_exchange_device(0), 1);
  EXPECT_EQ(current_device(), 0);
}

TEST(Runtime, UnknownDeviceRaisesAndChangesNothing) {
  set_device(1);
  EXPECT_THROW(set_device(kTestDevices), c10::Error);
  EXPECT_THROW(exchange_device(-1), c10::Error);
  EXPECT_EQ(current_device(), 1);
  set_device(0);
}

TEST(Runtime, ErrorNamesIndexAndCount) {
  try {
    check_device_index(99);
    FAIL() << "device 99 was accepted";
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_NE(message.find("invalid device ordinal 99"), std::string::npos) << message;
    EXPECT_NE(message.find("has 3 lazy device(s)"), std::string::npos) << message;
  }
}

TEST(Runtime, CurrentDeviceIsThreadLocal) {
  set_device(2);
  c10::DeviceIndex seen = -1;
  std::thread([&] { seen = current_device(); }).join();
  EXPECT_EQ(seen, 0);
  EXPECT_EQ(current_device(), 2);
  set_device(0);
}

TEST(Runtime, MissingIndexMeansCurrentDevice) {
  set_device(2);
  EXPECT_EQ(resolve_device_index(-1), 2);
  EXPECT_EQ(resolve_device_index(1), 1);
  EXPECT_THROW(resolve_device_index(kTestDevices), c10::Error);
  set_device(0);
}

} // namespace
} // namespace lazyplug
