#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <tuple>

// What is pointwise in an LSTM's and in a GRU's cell, and its gradient, each in one pass over the memory and as one
// call of a graph. In float32, with functions of this package's own (lowering/fusion/pointwise_ops.h); everything else
// rounds as the CPU's ops do. Gate order and formulas: torch.nn.LSTMCell and torch.nn.GRUCell.
//
// As ops, which are recorded and have no gradients themselves: lazyplug::lstm_cell, lstm_cell_backward, gru_cell and
// gru_cell_backward.
//
// For a state of [batch, n] an LSTM's gates are [batch, 4 * n], a GRU's [batch, 3 * n]; biases have one element for
// each column of these. Workspaces hold what the gradient needs: an LSTM's the gates, [batch, 4 * n]; a GRU's its
// gates, the state, and the candidate's part of the hidden gates, [batch, 5 * n].
namespace lazyplug::cells {

constexpr int64_t kLstmGates = 4;
constexpr int64_t kGruGates = 3;
constexpr int64_t kGruSaved = 5; // parts of a workspace

// Whether the tensors, unless undefined, are such as the ops take beside this state, [batch, num_parts * n] or, one row
// for all, [num_parts * n]; and so is the state.
using Tensors = std::initializer_list<std::reference_wrapper<const at::Tensor>>;
bool can_compute(const at::Tensor& state, int64_t num_parts, Tensors tensors);

// Returns the hidden state, the cell state and the workspace.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);

// Of a gradient that is undefined, zeros. Returns the gradients of the sum of the gates, and of `cx`.
std::tuple<at::Tensor, at::Tensor> lstm_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace);

// Returns the hidden state and the workspace.
std::tuple<at::Tensor, at::Tensor> gru(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);

// Returns the gradients of the input's gates, of the hidden ones, and of `hx`.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_backward(const at::Tensor& grad_hy, const at::Tensor& workspace);

} // namespace lazyplug::cells
