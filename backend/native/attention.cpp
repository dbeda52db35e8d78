#include <ATen/ops/_fused_sdp_choice_native.h>

#include "backend/native/kernels.h"

namespace lazyplug::native {

// What runs in the end is a CPU kernel, so the CPU's choice is the right one.
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

} // namespace lazyplug::native
