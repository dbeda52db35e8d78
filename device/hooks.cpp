#include "device/hooks.h"

#include "device/callbacks.h"
#include "device/fork.h"
#include "device/generator.h"
#include "device/pinned_allocator.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

[[maybe_unused]] const bool hooks_are_registered = [] {
  // ATen keeps the pointer for good.
  at::RegisterPrivateUse1HooksInterface(new LazyHooks());
  return true;
}();

} // namespace

bool LazyHooks::isBuilt() const {
  return true;
}

bool LazyHooks::isAvailable() const {
  return device_count_or_zero() > 0;
}

bool LazyHooks::hasPrimaryContext(c10::DeviceIndex device) const {
  return is_initialized() && 0 <= device && device < device_count_or_zero();
}

void LazyHooks::init() const {
  ensure_initialized();
}

c10::DeviceIndex LazyHooks::deviceCount() const {
  return device_count();
}

c10::DeviceIndex LazyHooks::getCurrentDevice() const {
  return current_device();
}

void LazyHooks::setCurrentDevice(c10::DeviceIndex device) const {
  set_device(device);
}

c10::DeviceIndex LazyHooks::exchangeDevice(c10::DeviceIndex device) const {
  return exchange_device(device);
}

c10::DeviceIndex LazyHooks::maybeExchangeDevice(c10::DeviceIndex device) const {
  return maybe_exchange_device(device);
}

const at::Generator& LazyHooks::getDefaultGenerator(c10::DeviceIndex device) const {
  return default_generator(device);
}

at::Generator LazyHooks::getNewGenerator(c10::DeviceIndex device) const {
  return at::make_generator<LazyGeneratorImpl>(device);
}

at::Allocator* LazyHooks::getPinnedMemoryAllocator() const {
  return pinned_allocator();
}

bool LazyHooks::isPinnedPtr(const void* data) const {
  return is_pinned(data);
}

at::Device LazyHooks::getDeviceFromPtr(void* /*data*/) const {
  return lazy_device(current_device());
}

void LazyHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const {
  device_callbacks().resize_storage(storage.unsafeGetStorageImpl(), nbytes);
}

} // namespace lazyplug
