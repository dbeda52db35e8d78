#include <ATen/Functions.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/lstm_cell_native.h>

#include <array>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"
#include "lowering/calls/recurrent_cells.h"

// PyTorch's LSTMCell and GRUCell ask an accelerator for fused cells, which have no
// CPU kernels. Here they are one op each (lowering/calls/recurrent_cells.h, which says what
// workspaces hold); or, where that does not compute them, ops that round as the CPU's
// cells do. The fused ones have no forward gradients in PyTorch; the ops have.
//
// Gate order and formulas: torch.nn.LSTMCell and torch.nn.GRUCell.
namespace lazyplug::native {
namespace {

// Of a matrix, so many columns, from there on.
using Columns = at::Tensor (*)(const at::Tensor& matrix, int64_t first, int64_t count);

// What a dispatched view costs is as much as to record what reads it.
at::Tensor columns(const at::Tensor& matrix, int64_t first, int64_t count) {
  const int64_t offset = matrix.storage_offset() + first * matrix.stride(1);
  return at::native::as_strided_tensorimpl(matrix, {matrix.size(0), count}, matrix.strides(), offset);
}

// As autograd sees them.
at::Tensor differentiable_columns(const at::Tensor& matrix, int64_t first, int64_t count) {
  return matrix.narrow(1, first, count);
}

template <size_t kNumParts>
std::array<at::Tensor, kNumParts> split(const at::Tensor& matrix, Columns take = columns) {
  constexpr auto kParts = static_cast<int64_t>(kNumParts);
  TORCH_CHECK(matrix.dim() == 2 && matrix.size(1) % kParts == 0, "expected a matrix of ", kParts, " gates");
  const int64_t count = matrix.size(1) / kParts;
  std::array<at::Tensor, kNumParts> parts;
  for (int64_t i = 0; i < kParts; ++i) {
    parts[i] = take(matrix, i * count, count);
  }
  return parts;
}

// Refuses what the CPU's products and functions in place would.
at::Tensor add_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(
      !at::isIntegralType(gates.scalar_type(), /*includeBool=*/true),
      "result type Float can't be cast to the desired output type ",
      gates.scalar_type());
  TORCH_CHECK(
      !bias || !bias->defined() || bias->dtype() == gates.dtype(),
      "self and mat2 must have the same dtype, but got ",
      bias->scalar_type(),
      " and ",
      gates.scalar_type());
  return bias && bias->defined() ? gates + *bias : gates;
}

at::Tensor or_zeros(const std::optional<at::Tensor>& grad, const at::Tensor& like) {
  return grad && grad->defined() ? *grad : at::zeros_like(like);
}

at::Tensor sigmoid_grad(const at::Tensor& grad, const at::Tensor& output) {
  return at::sigmoid_backward(grad, output);
}

at::Tensor tanh_grad(const at::Tensor& grad, const at::Tensor& output) {
  return at::tanh_backward(grad, output);
}

const at::Tensor& or_undefined(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}

at::Tensor bias_grad(const at::Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0, /*keepdim=*/false) : at::Tensor();
}

template <typename... Tensors>
bool have_tangents(const Tensors&... tensors) {
  return (fast_kernels::has_tangent(tensors) || ...);
}

// Of ops: hidden state, cell state, workspace.
std::tuple<at::Tensor, at::Tensor, at::Tensor> compose_lstm_cell(
    Columns take,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor gates = add_bias(input_gates, input_bias) + add_bias(hidden_gates, hidden_bias);
  const auto chunks = split<4>(gates, take);
  const at::Tensor in = chunks[0].sigmoid();
  const at::Tensor forget = chunks[1].sigmoid();
  const at::Tensor cell = chunks[2].tanh();
  const at::Tensor out = chunks[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  const at::Tensor hy = out * cy.tanh();
  return {hy, cy, at::cat({in, forget, cell, out}, 1)};
}

// Hidden state, workspace.
std::tuple<at::Tensor, at::Tensor> compose_gru_cell(
    Columns take,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor all_input = add_bias(input_gates, input_bias);
  const at::Tensor all_hidden = add_bias(hidden_gates, hidden_bias);
  const auto input = split<3>(all_input, take);
  const auto hidden = split<3>(all_hidden, take);
  // Of rows with gaps, as the CPU has them: the last elements of each are rounded otherwise than in the middle of a
  // vector.
  const int64_t width = 2 * hx.size(1);
  const auto sums = split<2>(take(all_input, 0, width) + take(all_hidden, 0, width), take);
  const at::Tensor reset = sums[0].sigmoid();
  const at::Tensor update = sums[1].sigmoid();
  const at::Tensor candidate = (input[2] + reset * hidden[2]).tanh();
  const at::Tensor hy = candidate + update * (hx - candidate);
  return {hy, at::cat({reset, update, candidate, hx, hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> compose_lstm_cell_backward(
    Columns take,
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const auto gates = split<4>(workspace, take);
  const at::Tensor tanh_cy = cy.tanh();
  const at::Tensor grad_h = or_zeros(grad_hy, cy);
  const at::Tensor grad_c = or_zeros(grad_cy, cy) + tanh_grad(grad_h * gates[3], tanh_cy);
  const at::Tensor grad_gates = at::cat(
      {sigmoid_grad(grad_c * gates[2], gates[0]),
       sigmoid_grad(grad_c * cx, gates[1]),
       tanh_grad(grad_c * gates[0], gates[2]),
       sigmoid_grad(grad_h * tanh_cy, gates[3])},
      1);
  return {grad_gates, grad_c * gates[1], bias_grad(grad_gates, has_bias)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
compose_gru_cell_backward(Columns take, const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto saved = split<5>(workspace, take);
  const auto& [reset, update, candidate, hx, hidden] = std::tie(saved[0], saved[1], saved[2], saved[3], saved[4]);
  const at::Tensor grad_update = sigmoid_grad(grad_hy * (hx - candidate), update);
  const at::Tensor grad_candidate = tanh_grad(grad_hy - grad_hy * update, candidate);
  const at::Tensor grad_reset = sigmoid_grad(grad_candidate * hidden, reset);
  const at::Tensor grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const at::Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  return {grad_input, grad_hidden, grad_hy * update, bias_grad(grad_input, has_bias), bias_grad(grad_hidden, has_bias)};
}

} // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> fused_lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (cells::can_compute(
          cx,
          cells::kLstmGates,
          {input_gates, hidden_gates, or_undefined(input_bias), or_undefined(hidden_bias)})) {
    return cells::lstm(input_gates, hidden_gates, cx, input_bias, hidden_bias);
  }
  return compose_lstm_cell(columns, input_gates, hidden_gates, cx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> differentiable_lstm_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (have_tangents(input_gates, hidden_gates, cx, input_bias, hidden_bias)) {
    auto [hy, cy, workspace] =
        compose_lstm_cell(differentiable_columns, input_gates, hidden_gates, cx, input_bias, hidden_bias);
    return {std::move(hy), std::move(cy), workspace.detach()};
  }
  using Op = at::_ops::_thnn_fused_lstm_cell;
  static const OpInfo& op = op_info(Op::name, Op::overload_name);
  return fast_kernels::call_autograd(op, &Op::redispatch, keys, input_gates, hidden_gates, cx, input_bias, hidden_bias);
}

// The fused cell's gradient reads the new cell state, which the gradients of the CPU's ops do not: a program may write
// it in place. So it gets a copy, which no kernel makes where neither is written.
std::tuple<at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input,
    at::TensorList hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh) {
  auto [hy, cy] = at::native::lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  if (cy.requires_grad()) {
    cy = cy.clone();
  }
  return {std::move(hy), std::move(cy)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> fused_lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const bool any_grad = (grad_hy && grad_hy->defined()) || (grad_cy && grad_cy->defined());
  if (!any_grad) {
    return {};
  }
  if (cells::can_compute(cy, 1, {cx, or_undefined(grad_hy), or_undefined(grad_cy)}) &&
      cells::can_compute(cy, cells::kLstmGates, {workspace})) {
    const auto [grad_gates, grad_cx] = cells::lstm_backward(grad_hy, grad_cy, cx, cy, workspace);
    return {grad_gates, grad_cx, bias_grad(grad_gates, has_bias)};
  }
  return compose_lstm_cell_backward(columns, grad_hy, grad_cy, cx, cy, workspace, has_bias);
}

std::tuple<at::Tensor, at::Tensor> fused_gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (cells::can_compute(
          hx,
          cells::kGruGates,
          {input_gates, hidden_gates, or_undefined(input_bias), or_undefined(hidden_bias)})) {
    return cells::gru(input_gates, hidden_gates, hx, input_bias, hidden_bias);
  }
  return compose_gru_cell(columns, input_gates, hidden_gates, hx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor> differentiable_gru_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (have_tangents(input_gates, hidden_gates, hx, input_bias, hidden_bias)) {
    auto [hy, workspace] =
        compose_gru_cell(differentiable_columns, input_gates, hidden_gates, hx, input_bias, hidden_bias);
    return {std::move(hy), workspace.detach()};
  }
  using Op = at::_ops::_thnn_fused_gru_cell;
  static const OpInfo& op = op_info(Op::name, Op::overload_name);
  return fast_kernels::call_autograd(op, &Op::redispatch, keys, input_gates, hidden_gates, hx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
fused_gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  if (cells::can_compute(grad_hy, cells::kGruSaved, {workspace})) {
    const auto [grad_input, grad_hidden, grad_hx] = cells::gru_backward(grad_hy, workspace);
    return {grad_input, grad_hidden, grad_hx, bias_grad(grad_input, has_bias), bias_grad(grad_hidden, has_bias)};
  }
  return compose_gru_cell_backward(columns, grad_hy, workspace, has_bias);
}

// Under vmap, where PyTorch would go through the samples one by one.

std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  return compose_lstm_cell(differentiable_columns, input_gates, hidden_gates, cx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const bool any_grad = (grad_hy && grad_hy->defined()) || (grad_cy && grad_cy->defined());
  return any_grad ? compose_lstm_cell_backward(differentiable_columns, grad_hy, grad_cy, cx, cy, workspace, has_bias)
                  : std::tuple<at::Tensor, at::Tensor, at::Tensor>();
}

std::tuple<at::Tensor, at::Tensor> batched_gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  return compose_gru_cell(differentiable_columns, input_gates, hidden_gates, hx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
batched_gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  return compose_gru_cell_backward(differentiable_columns, grad_hy, workspace, has_bias);
}

} // namespace lazyplug::native
