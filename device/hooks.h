// What ATen asks an accelerator: presence, current device, generators, host memory, storage resizing.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace lazyplug {

// Stateless and registered with ATen when the library is loaded.
struct LazyHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override;
  bool isAvailable() const override;
  // All devices of a process are initialised together.
  bool hasPrimaryContext(c10::DeviceIndex device) const override;
  void init() const override;

  c10::DeviceIndex deviceCount() const override;
  c10::DeviceIndex getCurrentDevice() const override;
  void setCurrentDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override;

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override;
  at::Generator getNewGenerator(c10::DeviceIndex device) const override;

  at::Allocator* getPinnedMemoryAllocator() const override;
  bool isPinnedPtr(const void* data) const override;
  // Any host memory can be used by any lazy device, hence by the current one.
  at::Device getDeviceFromPtr(void* data) const override;

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override;
};

} // namespace lazyplug
