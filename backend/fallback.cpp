#include "backend/fallback.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "backend/composed_tensors.h"
#include "backend/device_context.h"
#include "backend/journal.h"
#include "backend/python_hooks.h"
#include "backend/sync_cause.h"
#include "backend/sync_debug.h"
#include "common/config.h"
#include "common/logging.h"
#include "common/metrics.h"
#include "common/running_op.h"
#include "device/cpu_allocator.h"
#include "device/generator.h"
#include "device/runtime.h"
#include "lowering/execution_guard.h"
#include "lowering/runtime_ops.h"

namespace lazyplug {
namespace {

// A lazy storage over memory that is there already.
c10::Storage adopt(const c10::Storage& memory, c10::DeviceIndex device) {
  auto storage = c10::make_intrusive<LazyStorageImpl>(
      memory.nbytes(),
      c10::Device(kLazyDevice, device),
      /*resizable=*/true);
  storage->context().adopt(*storage, memory);
  return c10::Storage(std::move(storage));
}

// A map for the few tensors of a call.
template <typename K, typename V>
class SmallMap {
 public:
  V* find(K* key) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
    return found == entries_.end() ? nullptr : &found->second;
  }
  // Unless the key is already there.
  void add(K* key, V value) {
    if (!find(key)) {
      entries_.emplace_back(key, std::move(value));
    }
  }

 private:
  c10::SmallVector<std::pair<K*, V>, 4> entries_;
};

// One run of an op on the CPU: lazy arguments in, lazy results out.
class CpuCall {
 public:
  CpuCall(const OpInfo& op, c10::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const size_t first = stack_->size() - op_.num_args();
    find_devices();
    for (size_t i = 0; i < op_.num_args(); ++i) {
      auto& argument = (*stack_)[first + i];
      const bool written = op_.args()[i].written || op_.hidden_write(i);
      argument = to_cpu(op_.args()[i].kind, argument, written);
    }
    {
      const ExecutionGuard guard;
      const KernelMemoryScope memory(device_);
      const RunningOp running(op_.name().c_str());
      op_.handle().callBoxed(stack_);
    }
    for (const auto& [lazy, cpu] : written_) {
      copy_metadata_back(lazy, cpu);
    }
    for (auto& result : torch::jit::last(*stack_, op_.num_returns())) {
      const_cast<c10::IValue&>(result) = result_elsewhere_ ? result : to_lazy(result);
    }
  }

 private:
  // Where the lazy arguments are, and whether a device argument asks for a
  // result elsewhere.
  void find_devices() {
    std::optional<c10::DeviceIndex> found;
    const auto note = [&](c10::Device device) {
      if (!found && device.type() == kLazyDevice) {
        found = resolve_device_index(device.index());
      }
    };
    for (const c10::IValue& value : torch::jit::last(*stack_, op_.num_args())) {
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) {
          note(tensor.defined() ? tensor.device() : c10::Device(c10::kCPU));
        }
      } else if (value.isTensor() && value.toTensor().defined()) {
        note(value.toTensor().device());
      } else if (value.isDevice()) {
        note(value.toDevice());
        result_elsewhere_ |= value.toDevice().type() != kLazyDevice;
      }
    }
    device_ = found.value_or(current_device());
  }

  c10::IValue to_cpu(ArgKind kind, const c10::IValue& value, bool written) {
    if (value.isTensor()) {
      return tensor_to_cpu(value.toTensor(), written);
    }
    if (kind == ArgKind::kTensorList && value.isList()) {
      return list_to_cpu(value, written);
    }
    if (value.isDevice() && value.toDevice().type() == kLazyDevice) {
      return c10::Device(c10::kCPU);
    }
    if (kind == ArgKind::kGenerator && op_.random()) {
      return seeded_generator(static_cast<int64_t>(next_random_ticket(value.toOptional<at::Generator>(), device_)));
    }
    return value;
  }

  c10::IValue list_to_cpu(const c10::IValue& value, bool written) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(to_cpu(ArgKind::kTensor, element, written));
    }
    return list;
  }

  at::Tensor tensor_to_cpu(const at::Tensor& tensor, bool for_write) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (tensor.device().type() != kLazyDevice) {
      lazy_tensors_.add(tensor.unsafeGetTensorImpl(), tensor); // returned, it stays where it is
      return tensor;
    }
    const at::Tensor* known = cpu_tensors_.find(tensor.unsafeGetTensorImpl());
    at::Tensor cpu = known ? *known : convert_to_cpu(tensor, for_write || op_.writes());
    if (for_write) {
      written_.emplace_back(tensor, cpu);
    }
    return cpu;
  }

  at::Tensor convert_to_cpu(const at::Tensor& tensor, bool for_write) {
    const auto convert = [&](const at::Tensor& part) { return strided_to_cpu(part, for_write); };
    at::Tensor cpu = is_composed(tensor) ? convert_composed(tensor, convert) : convert(tensor);
    if (tensor.requires_grad() && torch::autograd::isDifferentiableType(tensor.scalar_type())) {
      // A few kernels compute more for tensors that will be differentiated. (A write of a number that requires
      // gradients makes a tensor of bools require them, too.)
      cpu.unsafeGetTensorImpl()->set_requires_grad(true);
    }
    cpu_tensors_.add(tensor.unsafeGetTensorImpl(), cpu);
    lazy_tensors_.add(cpu.unsafeGetTensorImpl(), tensor);
    return cpu;
  }

  at::Tensor strided_to_cpu(const at::Tensor& tensor, bool for_write) {
    at::Tensor cpu = cpu_alias(tensor, for_write);
    lazy_storages_.add(cpu.storage().unsafeGetStorageImpl(), {cpu.storage(), tensor.storage()});
    return cpu;
  }

  static bool is_composed(const at::Tensor& tensor) {
    return composed_kind(*tensor.unsafeGetTensorImpl()) != nullptr;
  }

  // The op may have resized a tensor, or its storage, or given it another one.
  void copy_metadata_back(const at::Tensor& lazy, const at::Tensor& cpu) {
    if (is_composed(lazy)) {
      return assign_composed(lazy, cpu, [this](const at::Tensor& part) { return strided_to_lazy(part); });
    }
    c10::Storage storage = lazy_storage(cpu);
    auto* impl = LazyStorageImpl::of(storage);
    if (impl && storage.data() != cpu.storage().data()) {
      DeviceContext::refresh(*impl, cpu.storage());
    }
    auto* tensor = lazy.unsafeGetTensorImpl();
    if (!lazy.storage().is_alias_of(storage)) {
      tensor->set_storage_keep_dtype(std::move(storage));
    }
    if (!Geometry::of(*cpu.unsafeGetTensorImpl()).matches(*tensor)) {
      tensor->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
  }

  c10::IValue to_lazy(const c10::IValue& value) {
    if (value.isTensor()) {
      return tensor_to_lazy(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensor_to_lazy(tensor));
      }
      return list;
    }
    return value;
  }

  at::Tensor tensor_to_lazy(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu()) {
      return tensor;
    }
    if (const auto* found = lazy_tensors_.find(tensor.unsafeGetTensorImpl())) {
      return *found;
    }
    return is_composed(tensor)
               ? convert_composed(tensor, [this](const at::Tensor& part) { return strided_to_lazy(part); })
               : strided_to_lazy(tensor);
  }

  at::Tensor strided_to_lazy(const at::Tensor& cpu) {
    return make_lazy_tensor(lazy_storage(cpu), Geometry::of(*cpu.unsafeGetTensorImpl()));
  }

  // The lazy storage that stands for a CPU tensor's: an argument's, or a new one.
  c10::Storage lazy_storage(const at::Tensor& cpu) {
    auto* key = cpu.storage().unsafeGetStorageImpl();
    if (const auto* found = lazy_storages_.find(key)) {
      return found->lazy;
    }
    c10::Storage lazy = adopt(cpu.storage(), device_);
    lazy_storages_.add(key, {cpu.storage(), lazy});
    return lazy;
  }

  // Both are held: an op may let go of a part of a tensor, and another storage
  // take its address.
  struct StoragePair {
    c10::Storage cpu;
    c10::Storage lazy;
  };

  const OpInfo& op_;
  c10::Stack* stack_;
  c10::DeviceIndex device_ = 0;
  bool result_elsewhere_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_; // lazy, CPU
  // By lazy tensor: ops treat a tensor that is passed twice in its own way.
  SmallMap<c10::TensorImpl, at::Tensor> cpu_tensors_;
  SmallMap<c10::StorageImpl, StoragePair> lazy_storages_; // by CPU storage
  SmallMap<c10::TensorImpl, at::Tensor> lazy_tensors_;    // by CPU tensor
};

bool first_time(const OpInfo& op) {
  static std::mutex mutex;
  static auto* warned = new std::unordered_set<const OpInfo*>();
  const std::lock_guard<std::mutex> lock(mutex);
  return warned->insert(&op).second;
}

void warn(const OpInfo& op, const char* reason) {
  if (config().fallback.get() != "warn" || !first_time(op)) {
    return;
  }
  const char* location = current_location();
  TORCH_WARN(
      op.name(),
      " runs on the CPU at once instead of being recorded: ",
      reason,
      location ? std::string(" (at ") + location + ")" : "");
}

// A tensor on the device whose memory is not ours, such as a wrapped pointer.
at::Tensor foreign_alias(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.has_storage(),
      "cannot read the memory of a ",
      tensor.layout(),
      " tensor on ",
      tensor.device());
  return make_cpu_tensor(alias_storage(tensor.storage(), c10::kCPU), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

void refuse(const OpInfo& op, const char* reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      config().fallback.get() != "error",
      op.name(),
      " cannot be recorded: ",
      reason,
      ". It would run on the CPU, which the setting fallback=error forbids.");
}

} // namespace

void run_fallback(const OpInfo& op, c10::Stack* stack, const char* reason) {
  static Counter& total = counter("FallbackTotal");
  const bool forced = std::string_view(reason) == "forced";
  if (!forced) {
    refuse(op, reason);
  }
  note_sync(c10::str(op.name(), " on the CPU"));
  const SyncCause cause("fallback");
  CpuCall(op, stack).run();
  total.add();
  counter(op.base_name()).add();
  log_debug(op.name(), " ran on the CPU: ", reason);
  if (config().debug.get()) {
    add_to_journal(JournalKind::kFallback, op.name(), reason, current_location());
  }
  if (!forced) {
    warn(op, reason);
  }
}

void run_at_once(const OpInfo& op, c10::Stack* stack, const char* reason) {
  static Counter& runs = counter("RunAtOnce");
  const SyncCause cause(reason);
  CpuCall(op, stack).run();
  runs.add();
}

at::Tensor cpu_alias(const at::Tensor& tensor, bool for_write) {
  auto* storage = LazyStorageImpl::of(tensor);
  if (!storage) {
    return foreign_alias(tensor);
  }
  c10::Storage memory =
      for_write ? DeviceContext::materialize_for_write(*storage) : DeviceContext::materialize(*storage);
  return make_cpu_tensor(std::move(memory), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

at::Tensor adopt_cpu_tensor(const at::Tensor& tensor, c10::DeviceIndex device) {
  return make_lazy_tensor(adopt(tensor.storage(), device), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

} // namespace lazyplug
