#include <ATen/native/Resize.h>

#include "backend/execution/device_context.h"
#include "backend/execution/resize.h"
#include "backend/native/deterministic.h"
#include "backend/native/kernels.h"
#include "device/runtime.h"
#include "device/stream.h"

namespace lazyplug::native {
namespace {

Geometry
resized_geometry(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> memory_format) {
  Geometry geometry = Geometry::contiguous(self.scalar_type(), sizes);
  geometry.offset = self.storage_offset();
  if (memory_format == at::MemoryFormat::ChannelsLast) {
    TORCH_CHECK(sizes.size() == 4, "required rank 4 tensor to use channels_last format");
    geometry.strides = c10::get_channels_last_strides_2d(sizes);
  } else if (memory_format == at::MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(sizes.size() == 5, "required rank 5 tensor to use channels_last_3d format");
    geometry.strides = c10::get_channels_last_strides_3d(sizes);
  }
  return geometry;
}

// What a resized storage has gained.
void fill_behind(const at::Tensor& self, size_t old_nbytes) {
  const auto itemsize = static_cast<int64_t>(self.dtype().itemsize());
  const int64_t begin = (static_cast<int64_t>(old_nbytes) + itemsize - 1) / itemsize;
  const int64_t end = static_cast<int64_t>(self.storage().nbytes()) / itemsize;
  if (begin < end) {
    fill_uninitialized(self.as_strided({end - begin}, {1}, begin));
  }
}

at::Tensor& set_storage(
    at::Tensor& self,
    const at::Storage& source,
    int64_t storage_offset,
    c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, storage_offset, size, stride);
  Geometry geometry = Geometry::contiguous(self.scalar_type(), size);
  if (stride.data()) {
    geometry.strides = stride;
  } else if (self.sizes() == size) {
    geometry.strides = self.strides(); // as eager: nothing is resized
  }
  geometry.offset = storage_offset;
  resize_to(*self.unsafeGetTensorImpl(), geometry);
  return self;
}

} // namespace

const at::Tensor&
resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  TORCH_CHECK(memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", at::MemoryFormat::Preserve);
  if (self.sizes() == sizes && !memory_format) {
    return self; // keeps its strides
  }
  for (int64_t extent : sizes) {
    TORCH_CHECK(extent >= 0, "Trying to create tensor with negative dimension ", extent, ": ", sizes);
  }
  const size_t old_nbytes = self.storage().nbytes();
  resize_to(*self.unsafeGetTensorImpl(), resized_geometry(self, sizes, memory_format));
  if (C10_UNLIKELY(fills_uninitialized_memory())) {
    fill_behind(self, old_nbytes);
  }
  return self;
}

const at::Tensor& resize_output_(const at::Tensor& self, c10::SymIntArrayRef size, at::Device device) {
  TORCH_CHECK(
      self.device() == device,
      "out Tensor doesn't have the correct device set: expected ",
      device,
      ", got ",
      self.device());
  return resize_(self, size, std::nullopt);
}

at::Tensor& set_(at::Tensor& self) {
  auto storage = c10::make_intrusive<LazyStorageImpl>(0, self.device(), /*resizable=*/true);
  return set_storage(self, c10::Storage(std::move(storage)), 0, {0}, {});
}

at::Tensor& set_source_tensor_(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_source_storage_(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, source, 0, {count}, {});
}

at::Tensor& set_source_storage_offset_(
    at::Tensor& self,
    at::Storage source,
    c10::SymInt storage_offset,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride) {
  return set_storage(
      self,
      source,
      storage_offset.guard_int(__FILE__, __LINE__),
      C10_AS_INTARRAYREF_SLOW(size),
      C10_AS_INTARRAYREF_SLOW(stride));
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().is_alias_of(other.storage()) && self.storage_offset() == other.storage_offset() &&
         self.sizes() == other.sizes() && self.strides() == other.strides();
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // As for CUDA: `parameter.data = parameter_on_device` keeps the Parameter
  // object, and with it tied weights and what the optimizer refers to.
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && (tensor.is_cpu() || is_lazy(tensor));
  };
  return self.key_set() == from.key_set() || (dense(self) && dense(from));
}

void record_stream(at::Tensor& /*self*/, c10::Stream stream) {
  check_stream(stream);
}

} // namespace lazyplug::native
