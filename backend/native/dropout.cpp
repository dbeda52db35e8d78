#include <ATen/Functions.h>

#include "backend/native/kernels.h"

namespace lazyplug::native {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) {
    return {input, at::empty_like(input)}; // of its dtype, as on the CPU
  }
  if (train == false) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double keep = 1 - p;
  const double scale = keep == 0 ? 0 : 1 / keep;
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(keep);
  return {input.mul(mask).mul_(scale), mask}; // mul_ rounds the scale to the dtype, mul does not
}

} // namespace lazyplug::native
