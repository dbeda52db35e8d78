#include "device/allocator.h"

#include "device/fork.h"
#include "device/runtime.h"

#include <c10/core/CPUAllocator.h>

namespace lazyplug {
namespace {

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    ensure_initialized();
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(nbytes);
    memory.unsafe_set_device(lazy_device(current_device()));
    return memory;
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return c10::GetCPUAllocator()->raw_deleter();
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, device_allocator())

} // namespace

c10::Allocator* device_allocator() {
  static auto* allocator = new DeviceAllocator();
  return allocator;
}

} // namespace lazyplug
