#include <ATen/EmptyTensor.h>

#include "backend/execution/lazy_storage.h"
#include "backend/native/deterministic.h"
#include "backend/native/kernels.h"
#include "device/fork.h"
#include "device/runtime.h"

namespace lazyplug::native {
namespace {

c10::Device resolve_device(std::optional<at::Device> device) {
  const c10::DeviceIndex index = device && device->has_index() ? device->index() : -1;
  return {kLazyDevice, resolve_device_index(index)};
}

at::Tensor empty_tensor(
    size_t nbytes,
    at::ScalarType dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  check_not_pinned(pin_memory);
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided, "lazy tensors are strided, got layout ", *layout);
  if (dtype == at::kComplexHalf) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
  ensure_initialized();
  auto storage = c10::make_intrusive<LazyStorageImpl>(nbytes, resolve_device(device), /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(fills_uninitialized_memory())) {
    fill_uninitialized(tensor);
  }
  return tensor;
}

} // namespace

at::Tensor empty(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(sizes);
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type));
  at::Tensor tensor = empty_tensor(nbytes, type, layout, device, pin_memory);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  if (memory_format && *memory_format != at::MemoryFormat::Contiguous) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "unsupported memory format option ", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return filled_if_deterministic(std::move(tensor));
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  const auto type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(sizes);
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  at::Tensor tensor = empty_tensor(nbytes, type, layout, device, pin_memory);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return filled_if_deterministic(std::move(tensor));
}

// Zeros with the dispatch key that lets PyTorch simplify what is done with them.
at::Tensor efficient_zero_tensor(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  const at::Tensor zeros = at::zeros_symint(size, dtype, layout, c10::Device(resolve_device(device)), pin_memory);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(zeros.storage()),
      c10::DispatchKeySet({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor}),
      zeros.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(zeros.sizes());
  return tensor;
}

} // namespace lazyplug::native
