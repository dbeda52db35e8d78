#include <torch/csrc/profiler/stubs/base.h>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/stream.h"
#include "test/cpp/device/fake_executor.h"

namespace lazyplug {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

// What the profiler of autograd calls for the device, as PyTorch finds it.
class ProfilerTest : public testing::Test {
 protected:
  ProfilerVoidEventStub record() {
    ProfilerVoidEventStub event;
    stubs_.record(/*device=*/nullptr, &event, /*cpu_ns=*/nullptr);
    return event;
  }

  FakeExecutor executor_;
  const torch::profiler::impl::ProfilerStubs& stubs_ = *torch::profiler::impl::privateuse1Stubs();
};

TEST_F(ProfilerTest, IsRegistered) {
  EXPECT_TRUE(stubs_.enabled());
}

TEST_F(ProfilerTest, RecordsOnTheCurrentStreamOfTheCurrentDevice) {
  const c10::Stream side = new_stream(1, 0);
  set_device(1);
  exchange_stream(side);
  executor_.record_op(side);
  c10::DeviceIndex device = -1;
  ProfilerVoidEventStub event;
  int64_t cpu_ns = 0;
  stubs_.record(&device, &event, &cpu_ns);
  exchange_stream(default_stream(1));
  set_device(0);
  EXPECT_EQ(device, 1);
  EXPECT_NE(event, nullptr);
  EXPECT_GT(cpu_ns, 0);
  EXPECT_EQ(executor_.flushed, std::vector<c10::Stream>({side})) << "events that tell the time start the work";
}

TEST_F(ProfilerTest, TimesAreThoseOfTheExecution) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  executor_.runs_on_flush = false;
  const c10::Stream stream = default_stream(0);
  const ProfilerVoidEventStub start = record();
  executor_.record_op(stream);
  const ProfilerVoidEventStub end = record();
  std::this_thread::sleep_for(kPause);
  EXPECT_GE(stubs_.elapsed(&start, &end), std::chrono::microseconds(kPause).count());
  EXPECT_EQ(executor_.places(stream).completed, 1) << "what has not run is waited for";
}

TEST_F(ProfilerTest, EventsDieWithTheirLastOwner) {
  executor_.runs_on_flush = false;
  executor_.record_op(default_stream(0));
  record().reset();
  executor_.run_all(default_stream(0)); // gives the time to every event that waits for it
}

TEST_F(ProfilerTest, SynchronizesEachDevice) {
  std::vector<int> devices;
  stubs_.onEachDevice([&](int device) { devices.push_back(device); });
  EXPECT_EQ(devices, (std::vector<int>{0, 1, 2}));
  stubs_.synchronize();
  EXPECT_EQ(executor_.synchronized, (std::vector<c10::DeviceIndex>{0, 1, 2}));
}

TEST_F(ProfilerTest, MarksAndRangesDoNothing) {
  stubs_.mark("here");
  stubs_.rangePush("from here");
  stubs_.rangePop();
  EXPECT_TRUE(executor_.flushed.empty());
  EXPECT_TRUE(executor_.synchronized.empty());
}

} // namespace
} // namespace lazyplug
