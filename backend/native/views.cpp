#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "backend/execution/lazy_storage.h"
#include "backend/native/kernels.h"

// PyTorch's own view kernels, which only touch metadata, but are registered per
// backend. Storages count their views.
namespace lazyplug::native {
namespace {

at::Tensor noted(at::Tensor view) {
  if (LazyStorageImpl* storage = LazyStorageImpl::of(view)) {
    storage->note_view();
  }
  return view;
}

} // namespace

at::Tensor as_strided(
    const at::Tensor& self,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<c10::SymInt> storage_offset) {
  std::optional<int64_t> offset;
  if (storage_offset) {
    offset = storage_offset->guard_int(__FILE__, __LINE__);
  }
  return noted(
      at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), offset));
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return noted(at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return noted(at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride)));
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return noted(at::native::unfold(self, dimension, size, step));
}

at::Tensor view_as_real(const at::Tensor& self) {
  return noted(at::native::view_as_real(self));
}

at::Tensor view_as_complex(const at::Tensor& self) {
  return noted(at::native::view_as_complex(self));
}

} // namespace lazyplug::native
