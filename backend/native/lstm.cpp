#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "backend/execution/lazy_storage.h"
#include "backend/native/kernels.h"
#include "backend/native/recurrent.h"
#include "device/runtime.h"

// lstm takes the path that it takes on the CPU, where oneDNN runs whole layers if it can.
namespace lazyplug::native {
namespace {

// As in ideep::rnn_kind.
constexpr int64_t kLstm = 2;

bool is_supported_by_cpu(const char* dtype_check) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(dtype_check, "").typed<bool()>().call();
}

bool is_supported(at::ScalarType dtype) {
  static const bool bfloat16 = is_supported_by_cpu("mkldnn::_is_mkldnn_bf16_supported");
  static const bool float16 = is_supported_by_cpu("mkldnn::_is_mkldnn_fp16_supported");
  return dtype == at::kFloat || (dtype == at::kBFloat16 && bfloat16) ||
         (dtype == at::kHalf && float16 && !c10::GradMode::is_enabled());
}

bool is_plain(const at::Tensor& tensor) {
  return !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && tensor.device().type() == kLazyDevice;
}

// PyTorch refuses these: no formula is known.
bool has_forward_gradient(const RecurrentWeights& weights, const at::Tensor& input, const RecurrentState& state) {
  const at::Tensor* const tensors[] =
      {&input, &state[0], &state[1], &weights.input, &weights.hidden, &weights.input_bias, &weights.hidden_bias};
  return std::any_of(std::begin(tensors), std::end(tensors), [](const at::Tensor* tensor) {
    return tensor->defined() && tensor->_fw_grad(/*level=*/0).defined();
  });
}

bool can_run_layers(const at::Tensor& input, at::TensorList hx, at::TensorList params) {
  const auto are_plain = [](at::TensorList tensors) { return std::all_of(tensors.begin(), tensors.end(), is_plain); };
  return at::globalContext().userEnabledMkldnn() && is_plain(input) && are_plain(hx) && are_plain(params) &&
         is_supported(input.scalar_type()) && input.numel() != 0 && hx.size() == 2 &&
         hx[0].sizes() == hx[1].sizes(); // no projections
}

// What a layer returns in one direction: output, hidden state and cell state.
using LayerResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Where gradients are off, the CPU asks oneDNN for an inference, which may round in another way. Jobs run as if they
// were on, so an inference is an op of its own.
LayerResult infer_layer_cpu(
    const at::Tensor& input,
    at::TensorList params,
    const at::Tensor& hidden,
    const at::Tensor& cell,
    bool reverse,
    bool has_biases) {
  const c10::AutoGradMode no_gradients(false);
  auto [output, next_hidden, next_cell, workspace] = at::mkldnn_rnn_layer(
      input,
      params[0],
      params[1],
      params[2],
      params[3],
      hidden,
      cell,
      reverse,
      /*batch_sizes=*/{},
      kLstm,
      hidden.size(-1),
      /*num_layers=*/1,
      has_biases,
      /*bidirectional=*/false,
      /*batch_first=*/false,
      /*train=*/false);
  return {output, next_hidden, next_cell};
}

LayerResult infer_layer_meta(
    const at::Tensor& input,
    at::TensorList /*params*/,
    const at::Tensor& hidden,
    const at::Tensor& cell,
    bool /*reverse*/,
    bool /*has_biases*/) {
  const at::Tensor output = at::empty({input.size(0), input.size(1), hidden.size(-1)}, input.options());
  return {output, at::empty_like(hidden), at::empty_like(cell)};
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  m.def(
      "lstm_layer_inference(Tensor input, Tensor[] params, Tensor hidden, Tensor cell, bool reverse, bool has_biases) "
      "-> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(lazyplug, CPU, m) {
  m.impl("lstm_layer_inference", infer_layer_cpu);
}
TORCH_LIBRARY_IMPL(lazyplug, Meta, m) {
  m.impl("lstm_layer_inference", infer_layer_meta);
}

const auto& infer_layer() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lazyplug::lstm_layer_inference", "")
                             .typed<decltype(infer_layer_cpu)>();
  return op;
}

// Of a network that is given the steps first, or the batch first: oneDNN asks only as whose part a layer runs.
RecurrentResult run_layer(
    const Recurrent& network,
    bool batch_first,
    const RecurrentWeights& weights,
    const at::Tensor& input,
    const RecurrentState& state,
    bool reverse) {
  const at::Tensor& input_bias = network.has_biases ? weights.input_bias : at::zeros_like(weights.input);
  const at::Tensor& hidden_bias = network.has_biases ? weights.hidden_bias : at::zeros_like(weights.hidden);
  if (!c10::GradMode::is_enabled() && !has_forward_gradient(weights, input, state)) {
    const auto [output, hidden, cell] = infer_layer().call(
        input,
        {weights.input, weights.hidden, input_bias, hidden_bias},
        state[0],
        state[1],
        reverse,
        network.has_biases);
    return {output, {hidden, cell}};
  }
  const auto [output, hidden, cell, workspace] = at::mkldnn_rnn_layer(
      input,
      weights.input,
      weights.hidden,
      input_bias,
      hidden_bias,
      state[0],
      state[1],
      reverse,
      /*batch_sizes=*/{},
      kLstm,
      state[0].size(-1),
      network.num_layers,
      network.has_biases,
      network.bidirectional,
      batch_first,
      network.train);
  return {output, {hidden, cell}};
}

} // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  if (!can_run_layers(input, hx, params)) {
    return lstm_of_cells()(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  const Recurrent network{params, has_biases, num_layers, dropout, train, bidirectional};
  const RecurrentState first = {hx[0].contiguous(), hx[1].contiguous()};
  const at::Tensor steps_first = (batch_first ? input.transpose(0, 1) : input).contiguous();
  const auto run =
      [&](const RecurrentWeights& weights, const at::Tensor& x, const RecurrentState& state, bool reverse) {
        return run_layer(network, batch_first, weights, x, state, reverse);
      };
  const auto [output, last] = run_recurrent_layers(network, steps_first, first, run);
  return {batch_first ? output.transpose(0, 1) : output, last[0], last[1]};
}

} // namespace lazyplug::native
