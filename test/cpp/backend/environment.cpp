// Settings for every test of this folder, before the first of them reads one: two devices, and workers that compute,
// whatever the machine.
#include <gtest/gtest.h>

#include <cstdlib>

namespace lazyplug {
namespace {

class Settings : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("LAZYPLUG_DEVICE_COUNT", "2", /*overwrite=*/1);
    setenv("LAZYPLUG_OVERLAP", "always", /*overwrite=*/1);
    setenv("LAZYPLUG_MAX_UNUSED_GRAPHS", "0", /*overwrite=*/1); // tests are no program
    setenv("LAZYPLUG_RUN_AT_ONCE", "never", /*overwrite=*/1);
    setenv("LAZYPLUG_COMPILE", "always", /*overwrite=*/1);
  }
};

[[maybe_unused]] const auto* environment = ::testing::AddGlobalTestEnvironment(new Settings());

} // namespace
} // namespace lazyplug
