#pragma once

#include <ATen/ATen.h>

namespace lazyplug {

inline at::Tensor meta(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(dtype));
}

} // namespace lazyplug
