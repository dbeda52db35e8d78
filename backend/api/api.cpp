#include "backend/api/api.h"

#include <map>

#include "backend/caches/steps.h"
#include "backend/diagnostics/origins.h"
#include "backend/diagnostics/sync_cause.h"
#include "backend/diagnostics/sync_debug.h"
#include "backend/execution/device_context.h"
#include "backend/execution/pending_slice.h"
#include "backend/recording/fallback.h"
#include "device/runtime.h"
#include "lowering/computation.h"
#include "lowering/ir/dump.h"

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

// Of each device that the tensors live on, what computes them.
template <typename Print>
std::string dump(const std::vector<at::Tensor>& tensors, Print print) {
  std::map<DeviceContext*, std::vector<at::Tensor>> by_device;
  for (const at::Tensor& tensor : tensors) {
    by_device[&lazy_storage_of(tensor).context()].push_back(tensor);
  }
  std::string text;
  for (const auto& [context, group] : by_device) {
    text += print(pending_slice(*context, group, /*with_data=*/false));
  }
  return text;
}

} // namespace

LazyStorageImpl& lazy_storage_of(const at::Tensor& tensor) {
  auto* storage = tensor.defined() ? LazyStorageImpl::of(tensor) : nullptr;
  TORCH_CHECK(
      storage,
      "expected a lazy tensor, got ",
      tensor.defined() ? "one on " + tensor.device().str() : "an undefined one");
  return *storage;
}

void mark_step(const std::string& device, const std::vector<std::string>& devices, bool wait) {
  const SyncCause cause("mark_step");
  note_step();
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
  const SyncCause cause("wait_device_ops");
  for (const auto& name : devices) {
    context_of(name).synchronize();
  }
  for (c10::DeviceIndex i = 0; devices.empty() && i < device_count(); ++i) {
    DeviceContext::get(i).synchronize();
  }
}

void sync_multi(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& devices, bool wait) {
  const SyncCause cause("sync_multi");
  for (const at::Tensor& tensor : tensors) {
    // Memory that another library shares, as from_dlpack() does, is there.
    if (tensor.device().type() != kLazyDevice || is_lazy(tensor)) {
      DeviceContext::materialize(lazy_storage_of(tensor));
    }
  }
  if (!devices.empty()) {
    mark_step("", devices, wait);
  }
}

int64_t tensor_id(const at::Tensor& tensor) {
  return static_cast<int64_t>(lazy_storage_of(tensor).id());
}

const char* origin_of(const at::Tensor& tensor) {
  const auto* storage = tensor.defined() ? LazyStorageImpl::of(tensor) : nullptr;
  return storage ? find_origin(storage->id()) : nullptr;
}

std::string tensors_text(const std::vector<at::Tensor>& tensors) {
  return dump(tensors, [](const TraceSlice& slice) { return to_text(slice.trace, slice.roots); });
}

std::string tensors_dot(const std::vector<at::Tensor>& tensors) {
  return dump(tensors, [](const TraceSlice& slice) { return to_dot(slice.trace, slice.roots); });
}

std::string tensors_backend(const std::vector<at::Tensor>& tensors) {
  return dump(tensors, [](const TraceSlice& slice) { return compile(slice.trace, slice.roots)->to_string(); });
}

bool is_pending(const at::Tensor& tensor) {
  return DeviceContext::state_of(lazy_storage_of(tensor)) == LazyStorageImpl::State::kPending;
}

bool is_ready(const at::Tensor& tensor) {
  return DeviceContext::is_ready(lazy_storage_of(tensor));
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

void materialize(const c10::Storage& storage, bool for_write) {
  if (auto* lazy = LazyStorageImpl::of(storage)) {
    note_sync("using the memory of a storage");
    for_write ? DeviceContext::materialize_for_write(*lazy) : DeviceContext::materialize(*lazy);
  }
}

namespace {

template <typename Error>
std::exception_ptr make_error(const std::string& message) {
  return std::make_exception_ptr(Error({__func__, __FILE__, __LINE__}, message));
}

} // namespace

void fail(const c10::Storage& storage, const std::string& type, const std::string& message) {
  auto* lazy = LazyStorageImpl::of(storage);
  TORCH_CHECK(lazy, "not a storage of the lazy device");
  const auto error = type == "IndexError"            ? make_error<c10::IndexError>(message)
                     : type == "ValueError"          ? make_error<c10::ValueError>(message)
                     : type == "TypeError"           ? make_error<c10::TypeError>(message)
                     : type == "NotImplementedError" ? make_error<c10::NotImplementedError>(message)
                     : type == "OutOfMemoryError"    ? make_error<c10::OutOfMemoryError>(message)
                     : type == "LinAlgError"         ? make_error<c10::LinAlgError>(message)
                                                     : make_error<c10::Error>(message);
  lazy->context().fail(*lazy, error);
}

at::Tensor memory_alias(const at::Tensor& tensor, bool on_cpu) {
  note_sync("exporting the memory of a tensor");
  const at::Tensor cpu = cpu_alias(tensor, Access::kShare);
  if (on_cpu) {
    return cpu;
  }
  return make_lazy_tensor(alias_storage(cpu.storage(), tensor.device()), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

} // namespace lazyplug
