#include "backend/native/recurrent.h"

#include <ATen/Functions.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>

#include <algorithm>

#include "backend/native/kernels.h"
#include "device/runtime.h"
#include "lowering/calls/recurrent_cells.h"

namespace lazyplug::native {
namespace {

bool has_projection(const RecurrentState& state) {
  return state.size() == 2 && state[0].size(-1) != state[1].size(-1);
}

int64_t params_per_layer(const Recurrent& network, const RecurrentState& state) {
  return (network.has_biases ? 4 : 2) + (has_projection(state) ? 1 : 0);
}

// ---- cells: gates of the input and a state in, a state out ----

// PyTorch's fused cells have no forward gradients, and functorch knows no batches of them.
bool is_transformed(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kTransforms(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
  return tensor.key_set().has_any(kTransforms) || tensor._fw_grad(/*level=*/0).defined();
}

bool can_fuse(
    const at::Tensor& state,
    int64_t num_gates,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates) {
  return cells::can_compute(state, num_gates, {input_gates, hidden_gates}) && !is_transformed(state) &&
         !is_transformed(input_gates) && !is_transformed(hidden_gates);
}

RecurrentState
step_simple(RecurrentCell cell, const at::Tensor& gates, const at::Tensor& hidden, const RecurrentWeights& weights) {
  const at::Tensor sum = weights.hidden_gates(hidden).add_(gates);
  return {cell == RecurrentCell::kTanh ? sum.tanh() : sum.relu()};
}

// Gate order and formulas: torch.nn.LSTMCell.
RecurrentState step_lstm(const at::Tensor& input_gates, const RecurrentState& state, const RecurrentWeights& weights) {
  const at::Tensor hidden_gates = weights.hidden_gates(state[0]);
  if (can_fuse(state[1], cells::kLstmGates, input_gates, hidden_gates)) {
    const auto [hidden, cell, workspace] = at::_thnn_fused_lstm_cell(input_gates, hidden_gates, state[1]);
    return {weights.projected(hidden), cell};
  }
  const auto gates = hidden_gates.add_(input_gates).unsafe_chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid_();
  const at::Tensor forget = gates[1].sigmoid_();
  const at::Tensor candidate = gates[2].tanh_();
  const at::Tensor out = gates[3].sigmoid_();
  const at::Tensor cell = (forget * state[1]).add_(in * candidate);
  const at::Tensor hidden = out * cell.tanh();
  return {weights.projected(hidden), cell};
}

// torch.nn.GRUCell.
RecurrentState step_gru(const at::Tensor& input_gates, const at::Tensor& hidden, const RecurrentWeights& weights) {
  const at::Tensor hidden_gates = weights.hidden_gates(hidden);
  if (can_fuse(hidden, cells::kGruGates, input_gates, hidden_gates)) {
    return {std::get<0>(at::_thnn_fused_gru_cell(input_gates, hidden_gates, hidden))};
  }
  const auto of_input = input_gates.unsafe_chunk(3, 1);
  const auto of_hidden = hidden_gates.unsafe_chunk(3, 1);
  const at::Tensor reset = of_hidden[0].add_(of_input[0]).sigmoid_();
  const at::Tensor update = of_hidden[1].add_(of_input[1]).sigmoid_();
  const at::Tensor candidate = of_input[2].add(of_hidden[2].mul_(reset)).tanh_();
  return {(hidden - candidate).mul_(update).add_(candidate)};
}

RecurrentState
step(RecurrentCell cell, const at::Tensor& gates, const RecurrentState& state, const RecurrentWeights& weights) {
  switch (cell) {
    case RecurrentCell::kLstm:
      return step_lstm(gates, state, weights);
    case RecurrentCell::kGru:
      return step_gru(gates, state[0], weights);
    default:
      return step_simple(cell, gates, state[0], weights);
  }
}

// ---- parts of states ----

template <typename F>
RecurrentState map(const RecurrentState& state, const F& f) {
  RecurrentState result;
  std::transform(state.begin(), state.end(), std::back_inserter(result), f);
  return result;
}

RecurrentState rows(const RecurrentState& state, int64_t begin, int64_t end) {
  return map(state, [&](const at::Tensor& part) { return part.narrow(0, begin, end - begin); });
}

template <typename Join>
RecurrentState join(const std::vector<RecurrentState>& states, const Join& join) {
  RecurrentState result;
  for (size_t part = 0; part < states.front().size(); ++part) {
    std::vector<at::Tensor> parts;
    for (const RecurrentState& state : states) {
      parts.push_back(state[part]);
    }
    result.push_back(join(parts));
  }
  return result;
}

RecurrentState concatenate_states(const std::vector<RecurrentState>& states) {
  return join(states, [](at::TensorList parts) { return at::cat(parts, 0); });
}

// ---- one direction of a layer ----

RecurrentResult run_steps(
    RecurrentCell cell,
    const RecurrentWeights& weights,
    const at::Tensor& input,
    RecurrentState state,
    bool reverse) {
  std::vector<at::Tensor> inputs = weights.input_gates(input).unbind(0);
  if (reverse) {
    std::reverse(inputs.begin(), inputs.end());
  }
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& gates : inputs) {
    state = step(cell, gates, state, weights);
    outputs.push_back(state[0]);
  }
  if (reverse) {
    std::reverse(outputs.begin(), outputs.end());
  }
  return {at::stack(outputs, 0), std::move(state)};
}

// Sequences end on the way: the longest come first in each batch.
RecurrentResult run_packed_forwards(
    RecurrentCell cell,
    const RecurrentWeights& weights,
    const at::Tensor& data,
    c10::IntArrayRef batch_sizes,
    RecurrentState state) {
  const at::Tensor inputs = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  std::vector<RecurrentState> ended;
  int64_t begin = 0;
  int64_t last_size = batch_sizes.front();
  for (const int64_t size : batch_sizes) {
    if (size < last_size) {
      ended.push_back(rows(state, size, last_size));
      state = rows(state, 0, size);
    }
    state = step(cell, inputs.narrow(0, begin, size), state, weights);
    outputs.push_back(state[0]);
    begin += size;
    last_size = size;
  }
  ended.push_back(std::move(state));
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), concatenate_states(ended)};
}

// Sequences begin on the way.
RecurrentResult run_packed_backwards(
    RecurrentCell cell,
    const RecurrentWeights& weights,
    const at::Tensor& data,
    c10::IntArrayRef batch_sizes,
    const RecurrentState& first_state) {
  const at::Tensor inputs = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  int64_t end = data.size(0);
  int64_t last_size = batch_sizes.back();
  RecurrentState state = rows(first_state, 0, last_size);
  for (auto size = batch_sizes.rbegin(); size != batch_sizes.rend(); ++size) {
    if (*size > last_size) {
      state = concatenate_states({state, rows(first_state, last_size, *size)});
    }
    state = step(cell, inputs.narrow(0, end - *size, *size), state, weights);
    outputs.push_back(state[0]);
    end -= *size;
    last_size = *size;
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), std::move(state)};
}

bool is_like(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
         tensor.device() == input.device() && tensor.layout() == at::kStrided;
}

} // namespace

RecurrentWeights::RecurrentWeights(const Recurrent& network, const RecurrentState& state, int64_t index) {
  const auto params = network.params.slice(index * params_per_layer(network, state), params_per_layer(network, state));
  input = params[0];
  hidden = params[1];
  if (network.has_biases) {
    input_bias = params[2];
    hidden_bias = params[3];
  }
  if (has_projection(state)) {
    projection = params.back();
  }
}

at::Tensor RecurrentWeights::input_gates(const at::Tensor& x) const {
  return at::linear(x, input, input_bias);
}

at::Tensor RecurrentWeights::hidden_gates(const at::Tensor& h) const {
  return at::linear(h, hidden, hidden_bias);
}

at::Tensor RecurrentWeights::projected(const at::Tensor& h) const {
  return projection.defined() ? at::matmul(h, projection.t()) : h;
}

RecurrentResult
run_recurrent_layers(const Recurrent& network, at::Tensor input, const RecurrentState& state, RunDirection run) {
  std::vector<RecurrentState> last;
  for (int64_t layer = 0; layer < network.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < network.directions(); ++direction) {
      const int64_t index = layer * network.directions() + direction;
      const auto first = map(state, [&](const at::Tensor& part) { return part.select(0, index); });
      RecurrentResult result = run(RecurrentWeights(network, state, index), input, first, direction == 1);
      outputs.push_back(std::move(result.output));
      last.push_back(std::move(result.state));
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (network.dropout != 0 && network.train && layer < network.num_layers - 1) {
      input = at::dropout(input, network.dropout, /*train=*/true);
    }
  }
  return {input, join(last, [](at::TensorList parts) { return at::stack(parts, 0); })};
}

bool can_run_recurrent(const Recurrent& network, const at::Tensor& input, const RecurrentState& state) {
  const int64_t count = network.num_layers * network.directions();
  const auto fits = [&](const at::Tensor& tensor) { return is_like(tensor, input); };
  const auto is_state = [&](const at::Tensor& part) { return fits(part) && part.dim() > 1 && part.size(0) == count; };
  return input.device().type() == kLazyDevice && fits(input) && input.size(0) != 0 &&
         std::all_of(state.begin(), state.end(), is_state) &&
         std::all_of(network.params.begin(), network.params.end(), fits) &&
         static_cast<int64_t>(network.params.size()) == count * params_per_layer(network, state);
}

bool can_run_packed(
    const Recurrent& network,
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const RecurrentState& state) {
  return can_run_recurrent(network, data, state) && batch_sizes.is_cpu() && batch_sizes.scalar_type() == at::kLong &&
         batch_sizes.is_contiguous() && batch_sizes.numel() != 0;
}

RecurrentResult
run_recurrent(RecurrentCell cell, const Recurrent& network, at::Tensor input, const RecurrentState& state) {
  return run_recurrent_layers(
      network,
      std::move(input),
      state,
      [&](const auto& weights, const auto& x, auto first, bool reverse) {
        return run_steps(cell, weights, x, std::move(first), reverse);
      });
}

RecurrentResult run_packed(
    RecurrentCell cell,
    const Recurrent& network,
    at::Tensor data,
    const at::Tensor& batch_sizes,
    const RecurrentState& state) {
  const c10::IntArrayRef sizes(batch_sizes.const_data_ptr<int64_t>(), batch_sizes.numel());
  return run_recurrent_layers(
      network,
      std::move(data),
      state,
      [&](const auto& weights, const auto& x, auto first, bool reverse) {
        return reverse ? run_packed_backwards(cell, weights, x, sizes, first)
                       : run_packed_forwards(cell, weights, x, sizes, std::move(first));
      });
}

// ---- ops ----

namespace {

RecurrentState state_of(const at::Tensor& hx) {
  return {hx};
}
RecurrentState state_of(at::TensorList hx) {
  return hx.vec();
}

// One state, or an LSTM's two.
template <typename Result>
bool has_parts(const RecurrentState& state) {
  return state.size() + 1 == std::tuple_size_v<Result>;
}

template <typename Result>
Result make_result(const at::Tensor& output, const RecurrentState& state) {
  if constexpr (std::tuple_size_v<Result> == 2) {
    return {output, state[0]};
  } else {
    return {output, state[0], state[1]};
  }
}

template <typename Result, typename Hx>
using Padded = Result (*)(const at::Tensor&, Hx, at::TensorList, bool, int64_t, double, bool, bool, bool);
template <typename Result, typename Hx>
using Packed = Result (*)(const at::Tensor&, const at::Tensor&, Hx, at::TensorList, bool, int64_t, double, bool, bool);

template <RecurrentCell cell, typename Result, typename Hx, Padded<Result, Hx> original>
Result run_padded_op(
    const at::Tensor& input,
    Hx hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  const Recurrent network{params, has_biases, num_layers, dropout, train, bidirectional};
  const at::Tensor steps_first = batch_first ? input.transpose(0, 1) : input;
  const RecurrentState state = state_of(hx);
  if (!has_parts<Result>(state) || !can_run_recurrent(network, steps_first, state)) {
    return original(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  const auto [output, last] = run_recurrent(cell, network, steps_first, state);
  return make_result<Result>(batch_first ? output.transpose_(0, 1) : output, last);
}

template <RecurrentCell cell, typename Result, typename Hx, Packed<Result, Hx> original>
Result run_packed_op(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    Hx hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  const Recurrent network{params, has_biases, num_layers, dropout, train, bidirectional};
  const RecurrentState state = state_of(hx);
  if (!has_parts<Result>(state) || !can_run_packed(network, data, batch_sizes, state)) {
    return original(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional);
  }
  const auto [output, last] = run_packed(cell, network, data, batch_sizes, state);
  return make_result<Result>(output, last);
}

using OneState = std::tuple<at::Tensor, at::Tensor>;
using TwoStates = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Hidden = const at::Tensor&;

template <RecurrentCell cell, Padded<OneState, Hidden> padded, Packed<OneState, Hidden> packed>
void register_op(torch::Library& library, const std::string& name) {
  library.impl((name + ".input").c_str(), run_padded_op<cell, OneState, Hidden, padded>);
  library.impl((name + ".data").c_str(), run_packed_op<cell, OneState, Hidden, packed>);
}

} // namespace

decltype(&lstm) lstm_of_cells() {
  return run_padded_op<RecurrentCell::kLstm, TwoStates, at::TensorList, at::native::lstm>;
}

void register_recurrent_ops(torch::Library& library) {
  register_op<RecurrentCell::kTanh, at::native::rnn_tanh, at::native::rnn_tanh>(library, "rnn_tanh");
  register_op<RecurrentCell::kRelu, at::native::rnn_relu, at::native::rnn_relu>(library, "rnn_relu");
  register_op<RecurrentCell::kGru, at::native::gru, at::native::gru>(library, "gru");
  library.impl("lstm.input", lstm);
  library.impl("lstm.data", run_packed_op<RecurrentCell::kLstm, TwoStates, at::TensorList, at::native::lstm>);
}

} // namespace lazyplug::native
