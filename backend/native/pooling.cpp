#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/max_pool1d_native.h>

#include <optional>

#include "backend/native/kernels.h"

namespace lazyplug::native {

// Where nobody differentiates, the CPU has a kernel of its own, whose results lie in the order of their dimensions. The
// way over max_pool2d, which all others go, lays them out like the argument.
at::Tensor max_pool1d(
    const at::Tensor& self,
    c10::IntArrayRef kernel_size,
    c10::IntArrayRef stride,
    c10::IntArrayRef padding,
    c10::IntArrayRef dilation,
    bool ceil_mode) {
  const bool is_differentiated = (self.requires_grad() && at::GradMode::is_enabled()) || self._fw_grad(0).defined();
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_differentiated || at::isFloatingType(self.scalar_type()) || self.numel() == 0,
      "\"max_pool1d_impl\" not implemented for '",
      self.scalar_type(),
      "'");
  std::optional<at::AutoDispatchBelowADInplaceOrView> guard; // what the way over max_pool2d squeezes is no view
  if (!is_differentiated) {
    guard.emplace();
  }
  const at::Tensor& argument = is_differentiated ? self : self.contiguous();
  return at::native::max_pool1d(argument, kernel_size, stride, padding, dilation, ceil_mode);
}

} // namespace lazyplug::native
