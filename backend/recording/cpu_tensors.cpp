#include "backend/recording/cpu_tensors.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <typeinfo>

#include "backend/execution/device_context.h"
#include "backend/ops/non_strided_tensors.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

// A lazy storage over memory that is there already.
c10::Storage adopt(c10::Storage memory, c10::DeviceIndex device) {
  return c10::Storage(c10::make_intrusive<LazyStorageImpl>(std::move(memory), DeviceContext::get(device)));
}

// A tensor on the device whose memory is not ours, such as a wrapped pointer. It may be that of another tensor, which
// what is recorded reads: that comes first.
c10::Storage foreign_memory(const at::Tensor& tensor, Access access) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.has_storage(),
      "cannot read the memory of a ",
      tensor.layout(),
      " tensor on ",
      tensor.device());
  if (access != Access::kRead) {
    DeviceContext::get(tensor.device().index()).finish();
  }
  return alias_storage(tensor.storage(), c10::kCPU);
}

c10::Storage memory_of(const at::Tensor& tensor, Access access) {
  auto* storage = LazyStorageImpl::of(tensor);
  if (!storage) {
    return foreign_memory(tensor, access);
  }
  return access == Access::kRead    ? DeviceContext::materialize(*storage)
         : access == Access::kWrite ? DeviceContext::materialize_for_write(*storage)
                                    : DeviceContext::materialize_for_sharing(*storage);
}

bool is_non_strided(const at::Tensor& tensor) {
  return non_strided_kind(*tensor.unsafeGetTensorImpl()) != nullptr;
}

// Null for tensors without one.
const c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Nobody but the caller knows the tensor, nor its storage.
bool is_fresh(const at::Tensor& cpu) {
  auto* impl = cpu.unsafeGetTensorImpl();
  return cpu.use_count() == 1 && impl->unsafe_storage().use_count() == 1 && typeid(*impl) == typeid(c10::TensorImpl) &&
         !impl->autograd_meta() && !impl->pyobj_slot()->load_pyobj();
}

} // namespace

at::Tensor cpu_alias(const at::Tensor& tensor, Access access) {
  return make_cpu_tensor(memory_of(tensor, access), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

at::Tensor cpu_operand(const at::Tensor& tensor) {
  auto* storage = LazyStorageImpl::of(tensor);
  return storage ? DeviceContext::read(*storage, *tensor.unsafeGetTensorImpl()) : cpu_alias(tensor, Access::kRead);
}

at::Tensor adopt_cpu_tensor(const at::Tensor& tensor, c10::DeviceIndex device) {
  return make_lazy_tensor(adopt(tensor.storage(), device), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

at::Tensor move_to_device(at::Tensor cpu, c10::DeviceIndex device) {
  auto* impl = cpu.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(adopt(impl->storage(), device));
  impl->_change_backend_component_keys(impl->device());
  return cpu;
}

// ---- in ----

at::Tensor CpuTensors::to_cpu(c10::MaybeOwned<at::Tensor> tensor, bool written) {
  if (!tensor->defined()) {
    return *tensor;
  }
  const bool is_ours = tensor->device().type() == kLazyDevice;
  const TensorPair* pair = find([&](const TensorPair& known) { return known.lazy->is_same(*tensor); });
  if (!pair) {
    at::Tensor cpu = is_ours ? convert_to_cpu(*tensor, written) : *tensor;
    num_elements_ = std::max(num_elements_, cpu.numel());
    pair = &tensors_.emplace_back(std::move(tensor), std::move(cpu));
  }
  if (written && is_ours) {
    written_.push_back(*pair);
  }
  return pair->cpu;
}

// The memory of a storage is asked for once: who asks again would not be alone.
at::Tensor CpuTensors::part_to_cpu(const at::Tensor& part, bool written) {
  const auto* storage = storage_impl(part);
  for (const StoragePair& pair : storages_) {
    if (pair.lazy.unsafeGetStorageImpl() == storage) {
      return make_cpu_tensor(pair.cpu, Geometry::of(*part.unsafeGetTensorImpl()));
    }
  }
  at::Tensor cpu = cpu_alias(part, written ? Access::kWrite : Access::kRead);
  storages_.push_back({part.storage(), cpu.storage()});
  return cpu;
}

at::Tensor CpuTensors::convert_to_cpu(const at::Tensor& tensor, bool written) {
  // A few kernels compute more for tensors that will be differentiated. (A write of a number that requires
  // gradients makes a tensor of bools require them, too.)
  const bool requires_grad = tensor.requires_grad() && torch::autograd::isDifferentiableType(tensor.scalar_type());
  at::Tensor cpu = is_non_strided(tensor)
                       ? convert_non_strided(tensor, [&](const at::Tensor& part) { return part_to_cpu(part, written); })
                   : may_write_    ? part_to_cpu(tensor, written)
                   : requires_grad ? cpu_alias(tensor, Access::kRead)
                                   : cpu_operand(tensor);
  if (requires_grad) {
    cpu.unsafeGetTensorImpl()->set_requires_grad(true);
  }
  return cpu;
}

// ---- out ----

void CpuTensors::update_written() {
  for (const TensorPair& pair : written_) {
    update(*pair.lazy, pair.cpu);
  }
}

void CpuTensors::update(const at::Tensor& lazy, const at::Tensor& cpu) {
  if (is_non_strided(lazy)) {
    return assign_non_strided(lazy, cpu, [this](const at::Tensor& part) { return strided_to_lazy(part); });
  }
  c10::Storage storage = current_storage(cpu);
  const Geometry geometry = Geometry::of(*cpu.unsafeGetTensorImpl());
  auto* tensor = lazy.unsafeGetTensorImpl();
  if (!lazy.storage().is_alias_of(storage)) {
    tensor->set_storage_keep_dtype(std::move(storage));
  }
  if (!geometry.matches(*tensor)) {
    tensor->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  }
}

at::Tensor CpuTensors::to_lazy(at::Tensor tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) {
    return tensor;
  }
  if (const TensorPair* pair = find([&](const TensorPair& known) { return known.cpu.is_same(tensor); })) {
    return *pair->lazy;
  }
  if (is_non_strided(tensor)) {
    return convert_non_strided(tensor, [this](const at::Tensor& part) { return strided_to_lazy(part); });
  }
  return is_fresh(tensor) ? move_to_device(std::move(tensor), device_) : strided_to_lazy(tensor);
}

at::Tensor CpuTensors::strided_to_lazy(const at::Tensor& cpu) {
  return make_lazy_tensor(current_storage(cpu), Geometry::of(*cpu.unsafeGetTensorImpl()));
}

// The same, as a kernel has left it: resized, within memory that is larger than the storage, or out of it.
c10::Storage CpuTensors::current_storage(const at::Tensor& cpu) {
  c10::Storage storage = lazy_storage(cpu);
  auto* impl = LazyStorageImpl::of(storage);
  const bool has_moved = storage.data() != cpu.storage().data();
  const size_t extent = Geometry::of(*cpu.unsafeGetTensorImpl()).extent_bytes();
  const size_t nbytes = has_moved ? cpu.storage().nbytes() : extent;
  if (impl && (has_moved || nbytes > storage.nbytes())) {
    DeviceContext::refresh(*impl, cpu.storage(), nbytes);
  }
  return storage;
}

// The lazy storage that stands for a CPU tensor's: an argument's, or a new one.
c10::Storage CpuTensors::lazy_storage(const at::Tensor& cpu) {
  const auto* storage = storage_impl(cpu);
  for (const StoragePair& pair : storages_) {
    if (pair.cpu.unsafeGetStorageImpl() == storage) {
      return pair.lazy;
    }
  }
  const auto shares = [&](const TensorPair& pair) {
    return storage_impl(pair.cpu) == storage && !pair.lazy->is_same(pair.cpu);
  };
  const TensorPair* argument = may_write_ ? nullptr : find(shares);
  c10::Storage lazy = argument ? argument->lazy->storage() : adopt(cpu.storage(), device_);
  storages_.push_back({lazy, cpu.storage()});
  return lazy;
}

} // namespace lazyplug
