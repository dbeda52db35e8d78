#include "device/guard.h"

#include "device/event.h"
#include "device/fork.h"
#include "device/runtime.h"
#include "device/stream.h"

#include <c10/util/Exception.h>

namespace lazyplug {
namespace {

C10_REGISTER_GUARD_IMPL(PrivateUse1, LazyGuardImpl)

constexpr int kHighPriority = -1;
constexpr int kNormalPriority = 0;

Event& as_event(void* event) {
  check_not_bad_fork();
  TORCH_INTERNAL_ASSERT(event != nullptr, "the event was never recorded");
  return *static_cast<Event*>(event);
}

// See Note [Flags defining the behavior of events].
bool wants_timing(c10::EventFlag flag) {
  switch (flag) {
    case c10::EventFlag::PYTORCH_DEFAULT:
      return false;
    case c10::EventFlag::BACKEND_DEFAULT:
      return true;
    default:
      TORCH_CHECK(false, "lazy devices do not know event flag ", static_cast<int>(flag));
  }
}

} // namespace

c10::DeviceType LazyGuardImpl::type() const {
  return kLazyDevice;
}

c10::Device LazyGuardImpl::getDevice() const {
  return lazy_device(current_device());
}

void LazyGuardImpl::setDevice(c10::Device device) const {
  set_device(device.index());
}

void LazyGuardImpl::uncheckedSetDevice(c10::Device device) const noexcept {
  restore_device(device.index());
}

c10::Device LazyGuardImpl::exchangeDevice(c10::Device device) const {
  return lazy_device(exchange_device(device.index()));
}

c10::DeviceIndex LazyGuardImpl::deviceCount() const noexcept {
  return device_count_or_zero();
}

c10::DeviceCapability LazyGuardImpl::getDeviceCapability(c10::Device device) const {
  resolve_device_index(device.index());
  return {};
}

void LazyGuardImpl::synchronizeDevice(c10::DeviceIndex device) const {
  synchronize_device(device);
}

c10::Stream LazyGuardImpl::getStream(c10::Device device) const {
  return current_stream(device.index());
}

c10::Stream LazyGuardImpl::getDefaultStream(c10::Device device) const {
  return default_stream(device.index());
}

c10::Stream LazyGuardImpl::getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const {
  return new_stream(device.index(), is_high_priority ? kHighPriority : kNormalPriority);
}

c10::Stream LazyGuardImpl::getNewStream(c10::Device device, int priority) const {
  return new_stream(device.index(), priority);
}

c10::Stream LazyGuardImpl::exchangeStream(c10::Stream stream) const {
  return exchange_stream(stream);
}

// Streams have no object of their own; their ids tell them apart, and as in CUDA the default stream is null.
void* LazyGuardImpl::getStreamNativeHandle(c10::Stream stream) const {
  return reinterpret_cast<void*>(stream.id());
}

bool LazyGuardImpl::queryStream(const c10::Stream& stream) const {
  return query_stream(stream);
}

void LazyGuardImpl::synchronizeStream(const c10::Stream& stream) const {
  synchronize_stream(stream);
}

void LazyGuardImpl::record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag)
    const {
  ensure_initialized();
  check_stream(stream);
  TORCH_CHECK(
      device == -1 || device == stream.device_index(),
      "Event device index ",
      static_cast<int>(device),
      " does not match recording stream's device index ",
      static_cast<int>(stream.device_index()),
      ".");
  if (*event == nullptr) {
    *event = new Event(wants_timing(flag));
  }
  as_event(*event).record(stream);
}

void LazyGuardImpl::block(void* event, const c10::Stream& stream) const {
  check_stream(stream);
  as_event(event).block(stream);
}

bool LazyGuardImpl::queryEvent(void* event) const {
  return as_event(event).query();
}

void LazyGuardImpl::synchronizeEvent(void* event) const {
  as_event(event).synchronize();
}

double LazyGuardImpl::elapsedTime(void* start, void* end, c10::DeviceIndex /*device*/) const {
  return elapsed_ms(as_event(start), as_event(end));
}

void LazyGuardImpl::destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept {
  delete static_cast<Event*>(event);
}

} // namespace lazyplug
