// Gives every test of this folder several devices, before the first of them reads the count.
#include "test/cpp/device/fake_executor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace lazyplug {
namespace {

class SeveralDevices : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("LAZYPLUG_DEVICE_COUNT", std::to_string(kTestDevices).c_str(), /*overwrite=*/1);
  }
};

[[maybe_unused]] const auto* environment = ::testing::AddGlobalTestEnvironment(new SeveralDevices());

} // namespace
} // namespace lazyplug
