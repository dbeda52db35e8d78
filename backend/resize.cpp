#include "backend/resize.h"

#include "backend/device_context.h"

namespace lazyplug {

void resize_to(c10::TensorImpl& tensor, const Geometry& geometry) {
  tensor.set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  auto* storage = LazyStorageImpl::of(&tensor);
  TORCH_INTERNAL_ASSERT(storage, "not a lazy tensor");
  if (geometry.extent_bytes() > storage->nbytes()) {
    DeviceContext::resize(*storage, geometry.extent_bytes());
  }
}

} // namespace lazyplug
