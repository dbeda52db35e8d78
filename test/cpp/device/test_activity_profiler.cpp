#include "device/activity_profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#define USE_KINETO // as in the source
#define FMT_HEADER_ONLY 1
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <gtest/gtest.h>

#include <map>

namespace lazyplug {
namespace {

namespace profiler = torch::autograd::profiler;

// Names of the device's kernels in a profile of the function, and their nanoseconds.
template <typename Function>
std::map<std::string, uint64_t> profile(const std::set<profiler::ActivityType>& activities, Function function) {
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  function();
  const auto result = profiler::disableProfiler();
  std::map<std::string, uint64_t> kernels;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CPU) { // which it is, depends on whether the device has its name
      kernels[event.name()] = event.durationNs();
    }
  }
  return kernels;
}

class ActivityProfilerTest : public testing::Test {
 protected:
  // Python's bindings do, when they are loaded.
  static void SetUpTestSuite() {
    torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().onKinetoInit();
  }
};

const std::set<profiler::ActivityType> kWithDevice = {profiler::ActivityType::CPU, profiler::ActivityType::PrivateUse1};

TEST_F(ActivityProfilerTest, ShowsKernelsOfTheProfile) {
  EXPECT_FALSE(is_profiling());
  add_profiled_kernels(0, {{"before", c10::getTime(), 10}});
  const auto kernels = profile(kWithDevice, [] {
    EXPECT_TRUE(is_profiling());
    add_profiled_kernels(0, {{"aten::mm", c10::getTime(), 2000}, {"aten::relu", c10::getTime(), 3000}});
  });
  EXPECT_FALSE(is_profiling());
  add_profiled_kernels(0, {{"after", c10::getTime(), 10}});
  EXPECT_EQ(kernels, (std::map<std::string, uint64_t>{{"aten::mm", 2000}, {"aten::relu", 3000}}));
}

TEST_F(ActivityProfilerTest, AsksOnlyIfTheDeviceIsIncluded) {
  const auto kernels = profile({profiler::ActivityType::CPU}, [] { EXPECT_FALSE(is_profiling()); });
  EXPECT_TRUE(kernels.empty());
}

TEST_F(ActivityProfilerTest, EachProfileHasItsOwn) {
  profile(kWithDevice, [] { add_profiled_kernels(0, {{"first", c10::getTime(), 10}}); });
  const auto kernels = profile(kWithDevice, [] {});
  EXPECT_TRUE(kernels.empty());
}

} // namespace
} // namespace lazyplug
