// Gives every test of this folder two devices, before the first of them reads the count.
#include <gtest/gtest.h>

#include <cstdlib>

namespace lazyplug {
namespace {

class TwoDevices : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("LAZYPLUG_DEVICE_COUNT", "2", /*overwrite=*/1);
  }
};

[[maybe_unused]] const auto* environment = ::testing::AddGlobalTestEnvironment(new TwoDevices());

} // namespace
} // namespace lazyplug
