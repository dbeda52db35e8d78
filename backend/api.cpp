#include "backend/api.h"

#include <map>

#include "backend/device_context.h"
#include "backend/sync_debug.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

DeviceContext& context_of(const std::string& name) {
  if (name.empty()) {
    return DeviceContext::get(current_device());
  }
  const c10::Device device(name);
  TORCH_CHECK(
      device.type() == kLazyDevice || device.type() == c10::DeviceType::Lazy,
      "expected a lazy device, got '",
      name,
      "'");
  return DeviceContext::get(device.index());
}

LazyStorageImpl& storage_of(const at::Tensor& tensor) {
  auto* storage = tensor.defined() ? LazyStorageImpl::of(tensor) : nullptr;
  TORCH_CHECK(
      storage,
      "expected a lazy tensor, got ",
      tensor.defined() ? "one on " + tensor.device().str() : "an undefined one");
  return *storage;
}

} // namespace

void mark_step(const std::string& device, const std::vector<std::string>& devices, bool wait) {
  std::vector<std::string> names = devices;
  if (names.empty()) {
    names.push_back(device);
  }
  for (const auto& name : names) {
    auto& context = context_of(name);
    wait ? context.synchronize() : context.flush();
  }
}

void wait_device_ops(const std::vector<std::string>& devices) {
  for (const auto& name : devices) {
    context_of(name).synchronize();
  }
  for (c10::DeviceIndex i = 0; devices.empty() && i < device_count(); ++i) {
    DeviceContext::get(i).synchronize();
  }
}

void sync_multi(
    const std::vector<at::Tensor>& tensors,
    const std::vector<std::string>& devices,
    bool wait,
    bool /*sync_ltc_data*/) {
  for (const at::Tensor& tensor : tensors) {
    DeviceContext::materialize(storage_of(tensor));
  }
  if (!devices.empty()) {
    mark_step("", devices, wait);
  }
}

int64_t tensor_id(const at::Tensor& tensor) {
  return static_cast<int64_t>(storage_of(tensor).id());
}

std::string tensors_text(const std::vector<at::Tensor>& tensors) {
  std::map<DeviceContext*, std::vector<LazyStorageImpl*>> by_device;
  for (const at::Tensor& tensor : tensors) {
    auto& storage = storage_of(tensor);
    by_device[&storage.context()].push_back(&storage);
  }
  std::string text;
  for (const auto& [context, storages] : by_device) {
    text += context->text(storages);
  }
  return text;
}

int64_t live_nodes() {
  size_t nodes = 0;
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    nodes += DeviceContext::get(i).pending_nodes();
  }
  return static_cast<int64_t>(nodes);
}

void stop_workers() {
  DeviceContext::stop_workers();
}

void materialize(const at::Tensor& tensor) {
  if (is_lazy(tensor)) {
    note_sync("using the memory of a tensor");
    DeviceContext::materialize(*LazyStorageImpl::of(tensor));
  }
}

void materialize(const c10::Storage& storage) {
  if (auto* lazy = LazyStorageImpl::of(storage)) {
    note_sync("using the memory of a storage");
    DeviceContext::materialize(*lazy);
  }
}

} // namespace lazyplug
