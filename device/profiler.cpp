#include "device/runtime.h"
#include "device/stream.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

namespace lazyplug {
namespace {

using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

constexpr float kMicrosecondsPerMillisecond = 1000;

const c10::impl::DeviceGuardImplInterface& guard() {
  return *c10::impl::getDeviceGuardImpl(kLazyDevice);
}

// Device times of `torch.autograd.profiler.profile(use_device="lazy")`: an event before and after each operation.
struct LazyProfilerStubs final : public ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const c10::DeviceIndex index = current_device();
    if (device) {
      *device = index;
    }
    void* raw = nullptr;
    guard().record(&raw, current_stream(index), index, c10::EventFlag::BACKEND_DEFAULT);
    *event = ProfilerVoidEventStub(raw, [index](void* recorded) { guard().destroyEvent(recorded, index); });
    if (cpu_ns) {
      *cpu_ns = c10::getTime();
    }
  }

  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    guard().synchronizeEvent(start->get());
    guard().synchronizeEvent(end->get());
    const double milliseconds = guard().elapsedTime(start->get(), end->get(), current_device());
    return static_cast<float>(milliseconds) * kMicrosecondsPerMillisecond;
  }

  bool enabled() const override {
    return true;
  }

  void onEachDevice(std::function<void(int)> call) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      call(device);
    }
  }

  void synchronize() const override {
    onEachDevice([](int device) { synchronize_device(static_cast<c10::DeviceIndex>(device)); });
  }

  // There is no external tool to annotate for.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
};

[[maybe_unused]] const bool profiler_is_registered = [] {
  // PyTorch keeps the pointer for good.
  torch::profiler::impl::registerPrivateUse1Methods(new LazyProfilerStubs());
  return true;
}();

} // namespace
} // namespace lazyplug
