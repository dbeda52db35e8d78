#include <ATen/EmptyTensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/equal_native.h>

#include <algorithm>
#include <cstring>

#include "backend/caches/steps.h"
#include "backend/diagnostics/sync_cause.h"
#include "backend/diagnostics/sync_debug.h"
#include "backend/execution/device_context.h"
#include "backend/inference/read_call.h"
#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fallback.h"
#include "backend/recording/fast_kernels.h"
#include "common/metrics.h"
#include "device/cpu_allocator.h"
#include "device/runtime.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/execution/execution_guard.h"

namespace lazyplug::native {
namespace {

at::Tensor& record_copy_(at::Tensor& self, const at::Tensor& source) {
  static const OpInfo& op = op_info("aten::copy_", "");
  return fast_kernels::fast_kernel<at::_ops::copy_>(op)(self, source, /*non_blocking=*/false); // whatever was asked for
}

bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

// More is copied by several threads.
constexpr size_t kSmall = 32 << 10;

// Whether to copy a few bytes is all there is to do.
bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kStrided && b.layout() == at::kStrided && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.numel() != 0 && a.nbytes() <= kSmall && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg() && a.is_non_overlapping_and_dense();
}

// The bytes that `self` would hold after a copy from a CPU tensor. Copied now:
// the source may change before anything runs.
c10::Storage snapshot(const at::Tensor& self, const at::Tensor& source) {
  if (lie_alike(self, source) && !self.is_conj() && !self.is_neg()) {
    c10::Storage memory = allocate_storage(self.nbytes(), self.device().index());
    std::memcpy(memory.mutable_data(), source.const_data_ptr(), self.nbytes());
    return memory;
  }
  const ExecutionGuard guard;
  const KernelMemoryScope memory(self.device().index());
  Geometry layout = Geometry::of(*self.unsafeGetTensorImpl());
  layout.conj = layout.neg = layout.wrapped_number = false;
  at::Tensor copy = lazyplug::empty(layout);
  copy.copy_(source);
  return copy.storage();
}

at::Tensor& copy_from_cpu(at::Tensor& self, const at::Tensor& source) {
  if (covers_storage(self)) {
    auto* storage = LazyStorageImpl::of(self);
    storage->context().adopt(*storage, snapshot(self, source));
    return self;
  }
  // Only a part of the storage is written, so it has to be recorded.
  at::Tensor whole;
  {
    const ExecutionGuard guard;
    const KernelMemoryScope memory(self.device().index());
    // With the source's strides: they order the writes, which shows where elements of `self` overlap.
    whole = at::empty_like(source);
    whole.copy_(source);
  }
  return record_copy_(self, adopt_cpu_tensor(whole, self.device().index()));
}

// Views of the same elements, which the CPU does not copy. One element may also be expanded: `x[:] = x[0]` fills on the
// CPU, and elsewhere comes here so. `x[None] = x`, which the CPU refuses, comes as the same call.
bool is_same_data(const at::Tensor& self, const at::Tensor& source) {
  if (!self.has_storage() || !source.has_storage() || !self.is_alias_of(source)) {
    return false;
  }
  const auto is_zero = [](int64_t stride) { return stride == 0; };
  const bool is_filled = self.numel() == 1 && std::all_of(source.strides().begin(), source.strides().end(), is_zero);
  return (is_filled || self.strides() == source.strides()) && self.sizes() == source.sizes() &&
         self.storage_offset() == source.storage_offset() && self.dtype() == source.dtype() &&
         self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
}

// A CPU tensor with the source's contents: its memory, if it is on a lazy device.
at::Tensor to_host(const at::Tensor& source) {
  if (source.device().type() == kLazyDevice) {
    return cpu_alias(source, Access::kRead);
  }
  return source.cpu();
}

at::Tensor& copy_to_cpu(at::Tensor& self, const at::Tensor& source) {
  static Counter& counter = lazyplug::counter("CopyToHost");
  note_sync("a copy to the CPU");
  note_step();
  counter.add();
  const SyncCause cause("copy to CPU");
  auto* storage = LazyStorageImpl::of(source);
  if (storage && lie_alike(self, source)) {
    const c10::Storage memory = DeviceContext::materialize(*storage);
    const size_t offset = source.storage_offset() * source.itemsize();
    if (offset + self.nbytes() <= memory.nbytes()) {
      std::memcpy(self.mutable_data_ptr(), static_cast<const char*>(memory.data()) + offset, self.nbytes());
      return self;
    }
  }
  const at::Tensor alias = cpu_alias(source, Access::kRead);
  const ExecutionGuard guard;
  return self.copy_(alias);
}

} // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  TORCH_CHECK(
      !self._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl() || is_same_data(self, source)) {
    return self;
  }
  if (source._is_zerotensor()) {
    return self.zero_();
  }
  if (is_lazy(self) && is_lazy(source) && self.device() == source.device()) {
    return record_copy_(self, source);
  }
  if (is_lazy(self)) {
    // Another reference to a tensor that Python knows would take Python's lock.
    return source.is_cpu() ? copy_from_cpu(self, source) : copy_from_cpu(self, to_host(source));
  }
  if (self.device().type() == kLazyDevice) {
    cpu_alias(self, Access::kWrite).copy_(source.is_cpu() ? source : to_host(source));
    return self;
  }
  return copy_to_cpu(self, source);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor target = dst;
  target.resize_(self.sizes());
  return copy_(target, self, /*non_blocking=*/false);
}

namespace {

// Whether the strides of a copy are those of the tensor, and its elements all there is to it.
bool is_copied_alike(const at::Tensor& self, std::optional<at::MemoryFormat> memory_format) {
  return self.layout() == at::kStrided && self.is_non_overlapping_and_dense() && !self.is_conj() && !self.is_neg() &&
         !self._is_zerotensor() && memory_format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve;
}

} // namespace

at::Tensor to_copy(
    const at::Tensor& self,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    std::optional<at::MemoryFormat> memory_format) {
  const at::Device to = device.value_or(self.device());
  const bool is_near = to == self.device() || to.is_cpu();
  const bool is_plain = is_near && is_lazy(self) && !pin_memory.value_or(false) &&
                        layout.value_or(at::kStrided) == at::kStrided && is_copied_alike(self, memory_format);
  if (!is_plain) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
  }
  const auto type = dtype.value_or(self.scalar_type());
  at::Tensor result = to.is_cpu() ? at::detail::empty_strided_cpu(self.sizes(), self.strides(), type)
                                  : empty_strided(self.sym_sizes(), self.sym_strides(), type, layout, to, pin_memory);
  return copy_(result, self, non_blocking);
}

namespace {

// Python wants to know a number, or a truth: such a read is where many a step ends.
void note_read(const char* what) {
  static Counter& counter = lazyplug::counter("ScalarRead");
  note_sync(what);
  note_step();
  counter.add();
}

template <typename T>
std::optional<at::Scalar> first_element(LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  T element;
  const size_t offset = static_cast<size_t>(tensor.storage_offset()) * sizeof(T);
  return DeviceContext::read_bytes(storage, offset, sizeof(T), &element) ? std::optional<at::Scalar>(element)
                                                                         : std::nullopt;
}

// Without a CPU tensor, which costs more than the read. Nothing for rare dtypes.
std::optional<at::Scalar> first_element(LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  switch (c10::typeMetaToScalarType(tensor.dtype())) {
#define LAZYPLUG_ELEMENT(type, name) \
  case c10::ScalarType::name:        \
    return first_element<type>(storage, tensor);
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, LAZYPLUG_ELEMENT)
#undef LAZYPLUG_ELEMENT
    default:
      return std::nullopt;
  }
}

} // namespace

// Past the dispatcher, as the next one.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  note_read("reading a value");
  const SyncCause cause("item");
  if (auto* storage = LazyStorageImpl::of(self)) {
    if (const auto element = first_element(*storage, *self.unsafeGetTensorImpl())) {
      return *element;
    }
  }
  return at::native::_local_scalar_dense_cpu(cpu_operand(self));
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.device() != other.device()) {
    raise_two_devices(self.device(), other.device());
  }
  note_read("comparing values");
  const SyncCause cause("equal");
  return at::native::cpu_equal(cpu_operand(self), cpu_operand(other));
}

void linalg_check_errors(const at::Tensor& info, std::string_view api_name, bool is_matrix) {
  note_read("looking for errors");
  const SyncCause cause("linalg");
  const at::Tensor cpu = cpu_operand(info);
  const bool is_plain = cpu.is_contiguous() && cpu.scalar_type() == at::kInt;
  const auto* first = is_plain ? cpu.const_data_ptr<int32_t>() : nullptr;
  const auto is_error = [](int32_t code) { return code != 0; };
  if (!is_plain || std::any_of(first, first + cpu.numel(), is_error)) {
    at::_linalg_check_errors(cpu, api_name, is_matrix);
  }
}

} // namespace lazyplug::native
