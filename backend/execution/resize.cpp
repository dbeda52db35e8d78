#include "backend/execution/resize.h"

#include "backend/execution/device_context.h"

namespace lazyplug {

void resize_to(c10::TensorImpl& tensor, const Geometry& geometry) {
  if (geometry.extent_bytes() > tensor.unsafe_storage().nbytes()) {
    auto* storage = LazyStorageImpl::of(&tensor);
    TORCH_CHECK(storage, "cannot resize memory that was wrapped, not allocated");
    DeviceContext::resize(*storage, geometry.extent_bytes());
  }
  // Only now that it cannot fail any more.
  tensor.set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
}

} // namespace lazyplug
