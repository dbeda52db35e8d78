#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include "backend/native/kernels.h"
#include "backend/recording/fast_kernels.h"

// PyTorch composes a linear layer of a transposed view and a product, and autograd
// follows both. It has a node for the whole of it as well, which costs half as much
// to make and to call; the products are those that the CPU computes.
namespace lazyplug::native {
namespace {

// Whether columns lie one after the other, so that autograd computes the gradient
// of a product transposed.
bool is_column_major(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

bool is_usual_input(const at::Tensor& input) {
  return input.numel() != 0 && at::isFloatingType(input.scalar_type()) &&
         (input.dim() == 2 ? !is_column_major(input) : input.dim() == 3 && input.is_contiguous() && input.size(2) != 1);
}

bool is_usual_bias(const std::optional<at::Tensor>& bias, const at::Tensor& weight) {
  return !bias || !bias->defined() ||
         (bias->dim() == 1 && bias->size(0) == weight.size(0) && bias->dtype() == weight.dtype());
}

// Calls whose gradients linear_backward computes as they would be otherwise, from
// what the node has saved.
bool is_usual(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return is_usual_input(input) && weight.dim() == 2 && weight.is_contiguous() && weight.numel() != 0 &&
         weight.dtype() == input.dtype() && is_usual_bias(bias, weight);
}

bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return torch::autograd::isFwGradDefined(tensor);
}

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

at::Tensor gradient_of_input(const at::Tensor& grad_output, const at::Tensor& weight) {
  const at::Tensor rows = at::mm(rows_of(grad_output), weight);
  return grad_output.dim() == 2 ? rows : rows.view({grad_output.size(0), grad_output.size(1), weight.size(1)});
}

at::Tensor gradient_of_bias(const at::Tensor& grad_output) {
  return rows_of(grad_output).sum(/*dim=*/0, /*keepdim=*/true).view({grad_output.size(-1)});
}

at::Tensor
linear_below_autograd(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::native::linear(input, weight, bias);
}

// Autograd's node of the layer. It keeps what the nodes of its parts would keep.
void set_node(
    const at::Tensor& result,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias) {
  const auto node = c10::make_intrusive<torch::autograd::generated::LinearBackward0>();
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  if (node->should_compute_output(1)) {
    node->input_ = torch::autograd::SavedVariable(input, /*is_output=*/false);
  }
  if (node->should_compute_output(0)) {
    node->weight_ = torch::autograd::SavedVariable(weight, /*is_output=*/false);
  }
  torch::autograd::set_history(result, node);
}

} // namespace

at::Tensor linear(
    c10::DispatchKeySet keys,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias) {
  const bool is_observed =
      (keys.raw_repr() & fast_kernels::kBetween) != 0 || keys.has(c10::DispatchKey::PythonDispatcher);
  if (is_observed || !is_usual(input, weight, bias) || has_tangent(input) || has_tangent(weight) || has_tangent(bias)) {
    return at::native::linear(input, weight, bias);
  }
  at::Tensor result = linear_below_autograd(input, weight, bias);
  if (torch::autograd::compute_requires_grad(input, weight, bias)) {
    set_node(result, input, weight, bias);
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask) {
  std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
  if (!c10::GradMode::is_enabled()) { // or the gradients are to be differentiated
    guard.emplace();
  }
  return {
      output_mask[0] ? gradient_of_input(grad_output, weight) : at::Tensor(),
      output_mask[1] ? at::mm(rows_of(grad_output).t(), rows_of(self)) : at::Tensor(),
      output_mask[2] ? gradient_of_bias(grad_output) : at::Tensor()};
}

} // namespace lazyplug::native
