#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"

// PyTorch composes a linear layer of a transposed view and a product, and autograd
// follows both. It has a node for the whole of it as well, which costs half as much
// to make and to call; the products are those that the CPU computes. Where these are
// predicted, they are recorded without making the views that they read.
namespace lazyplug::native {
namespace {

// Whether somebody between autograd and the device sees the calls.
bool is_observed(c10::DispatchKeySet keys) {
  return (keys.raw_repr() & fast_kernels::kBetween) != 0 || keys.has(c10::DispatchKey::PythonDispatcher);
}

// Whether columns lie one after the other, so that autograd computes the gradient
// of a product transposed.
bool is_column_major(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

// Not is_contiguous(), which leaves the strides of single rows open: by these, PyTorch tells whether the product is one
// of matrices or of batches.
bool are_rows_of_matrix(const at::Tensor& input) {
  return input.stride(2) == 1 && input.stride(1) == input.size(2) &&
         input.stride(0) == input.stride(1) * input.size(1) && input.size(2) != 1;
}

bool is_usual_input(const at::Tensor& input) {
  return input.numel() != 0 && at::isFloatingType(input.scalar_type()) &&
         (input.dim() == 2 ? !is_column_major(input) : input.dim() == 3 && are_rows_of_matrix(input));
}

bool is_usual_bias(const std::optional<at::Tensor>& bias, const at::Tensor& weight) {
  return !bias || !bias->defined() ||
         (bias->dim() == 1 && bias->size(0) == weight.size(0) && bias->dtype() == weight.dtype());
}

// Calls whose gradients linear_backward computes as they would be otherwise, from
// what the node has saved.
bool is_usual(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  // Not is_contiguous(), which leaves the strides of one row open, as the gradient does not.
  return is_usual_input(input) && weight.dim() == 2 && weight.stride(1) == 1 && weight.stride(0) == weight.size(1) &&
         weight.numel() != 0 && weight.dtype() == input.dtype() && is_usual_bias(bias, weight);
}

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

// A matrix as the rows of a tensor with these other sizes.
at::Tensor with_sizes_of(at::Tensor matrix, const at::Tensor& rows) {
  if (rows.dim() == 3) {
    matrix.unsafeGetTensorImpl()->set_sizes_contiguous({rows.size(0), rows.size(1), matrix.size(1)});
  }
  return matrix;
}

at::Tensor take_output(std::optional<DeviceContext::Predicted> predicted) {
  return predicted ? std::move(predicted->outputs.front()) : at::Tensor();
}

// Undefined, and nothing recorded, if the product is not what is predicted; likewise below.
at::Tensor predicted_product(const at::Tensor& a, MatrixView view_of_a, const at::Tensor& b, MatrixView view_of_b) {
  static const OpInfo& op = op_info("aten::mm", "");
  return take_output(
      predict(op, a, [&](PredictedCall& call) { return call.add(a, view_of_a) && call.add(b, view_of_b); }));
}

at::Tensor predicted_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!bias || !bias->defined()) {
    return predicted_product(input, MatrixView::kRows, weight, MatrixView::kTransposedRows);
  }
  static const OpInfo& op = op_info("aten::addmm", "");
  return take_output(predict(op, input, [&](PredictedCall& call) {
    return call.add(*bias) && call.add(input, MatrixView::kRows) && call.add(weight, MatrixView::kTransposedRows) &&
           call.add(int64_t{1}) && call.add(int64_t{1}); // beta and alpha
  }));
}

at::Tensor predicted_sum(const at::Tensor& grad_output) {
  static const OpInfo& op = op_info("aten::sum", "dim_IntList");
  at::Tensor sum = take_output(predict(op, grad_output, [&](PredictedCall& call) {
    return call.add(grad_output, MatrixView::kRows) && call.add(c10::IntArrayRef{0}) && call.add(/*keepdim=*/true) &&
           call.add(std::optional<c10::ScalarType>());
  }));
  if (sum.defined()) {
    sum.unsafeGetTensorImpl()->set_sizes_contiguous({sum.numel()});
  }
  return sum;
}

at::Tensor gradient_of_input(const at::Tensor& grad_output, const at::Tensor& weight, bool predicts) {
  if (predicts) {
    at::Tensor result = predicted_product(grad_output, MatrixView::kRows, weight, MatrixView::kRows);
    if (result.defined()) {
      return with_sizes_of(std::move(result), grad_output);
    }
  }
  const at::Tensor rows = at::mm(rows_of(grad_output), weight);
  return grad_output.dim() == 2 ? rows : rows.view({grad_output.size(0), grad_output.size(1), weight.size(1)});
}

at::Tensor gradient_of_weight(const at::Tensor& grad_output, const at::Tensor& self, bool predicts) {
  if (predicts) {
    at::Tensor result = predicted_product(grad_output, MatrixView::kTransposedRows, self, MatrixView::kRows);
    if (result.defined()) {
      return result;
    }
  }
  return at::mm(rows_of(grad_output).t(), rows_of(self));
}

at::Tensor gradient_of_bias(const at::Tensor& grad_output, bool predicts) {
  if (predicts) {
    if (at::Tensor result = predicted_sum(grad_output); result.defined()) {
      return result;
    }
  }
  return rows_of(grad_output).sum(/*dim=*/0, /*keepdim=*/true).view({grad_output.size(-1)});
}

// Of input, weight and bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask,
    bool predicts) {
  return {
      output_mask[0] ? gradient_of_input(grad_output, weight, predicts) : at::Tensor(),
      output_mask[1] ? gradient_of_weight(grad_output, self, predicts) : at::Tensor(),
      output_mask[2] ? gradient_of_bias(grad_output, predicts) : at::Tensor()};
}

at::Tensor
linear_below_autograd(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (at::Tensor result = predicted_linear(input, weight, bias); result.defined()) {
    return with_sizes_of(std::move(result), input);
  }
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
  if (is_observed(keys) || !is_usual(input, weight, bias) || fast_kernels::has_tangent(input) ||
      fast_kernels::has_tangent(weight) || fast_kernels::has_tangent(bias)) {
    return at::native::linear(input, weight, bias);
  }
  at::Tensor result = linear_below_autograd(input, weight, bias);
  if (torch::autograd::compute_requires_grad(input, weight, bias)) {
    set_node(result, input, weight, bias);
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask) {
  std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
  const bool is_differentiable = c10::GradMode::is_enabled();
  if (!is_differentiable) {
    guard.emplace();
  }
  return gradients(self, grad_output, weight, output_mask, !is_differentiable && !is_observed(keys));
}

// Under vmap, where PyTorch would go through the samples one by one.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_linear_backward(
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask) {
  return gradients(self, grad_output, weight, output_mask, /*predicts=*/false);
}

} // namespace lazyplug::native
