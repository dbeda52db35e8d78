#include <ATen/TracerMode.h>

#include "backend/inference/read_call.h"
#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"

namespace lazyplug::native {
namespace {

// PyTorch's kernel would look for one of no device.
void check_device(const at::Tensor& input, const at::Tensor& parameter) {
  if (parameter.defined() && parameter.device() != input.device()) {
    raise_two_devices(input.device(), parameter.device());
  }
}

} // namespace

// torch.jit.trace() does not see this op, but that of which PyTorch's kernel composes it.
at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups) {
  static const OpInfo& op = op_info("aten::convolution", "");
  check_device(input, weight);
  if (bias) {
    check_device(input, *bias);
  }
  if (at::tracer::impl::is_dispatch_enabled()) {
    c10::Stack stack;
    torch::jit::push(stack, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
    op.handle().callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
    return std::move(stack.back()).toTensor();
  }
  return fast_kernels::fast_kernel<at::_ops::convolution>(
      op)(input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

} // namespace lazyplug::native
