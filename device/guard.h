// PyTorch's door to devices, streams and events: the DeviceGuard of the lazy device.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace lazyplug {

// Stateless: everything is forwarded to runtime.h, stream.h and event.h, which hold the contracts.
struct LazyGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override;

  c10::Device getDevice() const override;
  void setDevice(c10::Device device) const override;
  void uncheckedSetDevice(c10::Device device) const noexcept override;
  c10::Device exchangeDevice(c10::Device device) const override;
  c10::DeviceIndex deviceCount() const noexcept override;
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override;
  void synchronizeDevice(c10::DeviceIndex device) const override;

  c10::Stream getStream(c10::Device device) const override;
  c10::Stream getDefaultStream(c10::Device device) const override;
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override;
  c10::Stream getNewStream(c10::Device device, int priority) const override;
  c10::Stream exchangeStream(c10::Stream stream) const override;
  void* getStreamNativeHandle(c10::Stream stream) const override;
  bool queryStream(const c10::Stream& stream) const override;
  void synchronizeStream(const c10::Stream& stream) const override;

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  double elapsedTime(void* start, void* end, c10::DeviceIndex device) const override;
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override;
};

} // namespace lazyplug
