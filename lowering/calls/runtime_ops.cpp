#include "lowering/calls/runtime_ops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>

#include "common/config.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {

// A copy with this layout, byte for byte: memory that was written through a view
// of another dtype may hold booleans other than 0 and 1, which kernels change.
at::Tensor arrange(const at::Tensor& tensor, const Geometry& layout) {
  at::Tensor copy = empty(layout);
  if (layout.dtype == at::kBool) {
    copy.view(at::kByte).copy_(tensor.view(at::kByte));
  } else {
    copy.copy_(tensor);
  }
  return copy;
}

} // namespace

const RuntimeOps& runtime_ops() {
  static const RuntimeOps ops;
  return ops;
}

at::Tensor ensure_layout(const at::Tensor& tensor, const Geometry& layout) {
  TORCH_INTERNAL_ASSERT(
      tensor.scalar_type() == layout.dtype && tensor.sizes() == c10::IntArrayRef(layout.sizes),
      "a kernel returned ",
      tensor.scalar_type(),
      tensor.sizes(),
      " where its Meta kernel promised ",
      to_string(layout));
  if (tensor.storage_offset() == 0 && !tensor.is_conj() && !tensor.is_neg() &&
      layout.same_memory(tensor.sizes(), tensor.strides())) {
    return tensor.strides() == c10::IntArrayRef(layout.strides) ? tensor : make_cpu_tensor(tensor.storage(), layout);
  }
  static Counter& arranged = counter("ResultArranged");
  arranged.add();
  return arrange(tensor, layout);
}

at::Tensor strided_view(const at::Tensor& base, const Geometry& layout, const Geometry& view) {
  return make_cpu_tensor(ensure_layout(base, layout).storage(), view);
}

at::Tensor moved(at::Tensor view, int64_t offset, size_t extent) {
  auto* impl = view.unsafeGetTensorImpl();
  const size_t nbytes = impl->unsafe_storage().nbytes();
  const bool is_within = extent <= nbytes && static_cast<size_t>(offset) <= (nbytes - extent) / impl->itemsize();
  // What has no elements may begin behind all of them.
  TORCH_CHECK_INDEX(offset >= 0 && (extent == 0 || is_within), "a view at ", offset, " leaves its storage");
  impl->set_storage_offset(offset);
  return view;
}

at::Tensor make_tensor(c10::Storage storage, const Geometry& geometry, c10::DispatchKey key) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(key),
      c10::scalarTypeToTypeMeta(geometry.dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  if (geometry.conj) {
    impl->_set_conj(true);
  }
  if (geometry.neg) {
    impl->_set_neg(true);
  }
  if (geometry.wrapped_number) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

at::Tensor make_cpu_tensor(c10::Storage storage, const Geometry& geometry) {
  return make_tensor(std::move(storage), geometry, c10::DispatchKey::CPU);
}

at::Tensor own(at::Tensor base, const Geometry& layout) {
  const at::Tensor arranged = ensure_layout(base, layout);
  base.reset();
  if (arranged.use_count() == 1 && arranged.storage().use_count() == 1) {
    // The counts are read relaxed: what other threads did with the memory comes before.
    std::atomic_thread_fence(std::memory_order_acquire);
    return arranged;
  }
  return arrange(arranged, layout);
}

at::Tensor empty(const Geometry& layout) {
  at::Tensor memory = at::empty_strided(layout.sizes, layout.strides, layout.dtype);
  // A graph may return it written in part: both runs that are compared must have the same rest.
  if (config().verify_torchscript.get() && memory.storage().nbytes() != 0) {
    std::memset(memory.storage().mutable_data(), 0, memory.storage().nbytes());
  }
  return memory;
}

at::Generator seeded_generator(int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

namespace {

Geometry geometry(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset = 0) {
  Geometry result;
  result.dtype = dtype;
  result.offset = offset;
  result.sizes = sizes;
  result.strides = strides;
  return result;
}

at::Tensor strided_view_op(
    const at::Tensor& base,
    at::IntArrayRef layout_sizes,
    at::IntArrayRef layout_strides,
    at::ScalarType dtype,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    int64_t offset,
    bool conj,
    bool neg,
    bool wrapped_number) {
  Geometry view = geometry(dtype, sizes, strides, offset);
  view.conj = conj;
  view.neg = neg;
  view.wrapped_number = wrapped_number;
  return strided_view(base, geometry(base.scalar_type(), layout_sizes, layout_strides), view);
}

at::Tensor moving_view_op(
    const at::Tensor& base,
    int64_t offset,
    at::IntArrayRef layout_sizes,
    at::IntArrayRef layout_strides,
    at::ScalarType dtype,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    bool conj,
    bool neg,
    bool wrapped_number) {
  at::Tensor view = strided_view_op(
      base,
      layout_sizes,
      layout_strides,
      dtype,
      sizes,
      strides,
      /*offset=*/0,
      conj,
      neg,
      wrapped_number);
  return moved(std::move(view), offset, geometry(dtype, sizes, strides).extent_bytes());
}

at::Tensor own_op(at::Tensor base, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto dtype = base.scalar_type();
  return own(std::move(base), geometry(dtype, sizes, strides));
}

at::Tensor empty_op(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return empty(geometry(dtype, sizes, strides));
}

TORCH_LIBRARY(lazyplug, m) {
  m.def(
      "strided_view(Tensor(a) base, int[] layout_sizes, int[] layout_strides, "
      "ScalarType dtype, int[] sizes, int[] strides, int offset, bool conj, bool neg, "
      "bool wrapped_number) "
      "-> Tensor(a)",
      strided_view_op);
  // Where it begins is an input of the graph.
  m.def(
      "strided_view.moving(Tensor(a) base, int offset, int[] layout_sizes, int[] layout_strides, "
      "ScalarType dtype, int[] sizes, int[] strides, bool conj, bool neg, "
      "bool wrapped_number) "
      "-> Tensor(a)",
      moving_view_op);
  m.def("own(Tensor(a) base, int[] sizes, int[] strides) -> Tensor(a)", own_op);
  m.def("empty(ScalarType dtype, int[] sizes, int[] strides) -> Tensor", empty_op);
  m.def("generator(int seed) -> Generator?", seeded_generator);
}

} // namespace
} // namespace lazyplug
