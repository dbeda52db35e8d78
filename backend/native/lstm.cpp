#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "backend/lazy_storage.h"
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

bool can_run_layers(const at::Tensor& input, at::TensorList hx, at::TensorList params) {
  const auto are_plain = [](at::TensorList tensors) { return std::all_of(tensors.begin(), tensors.end(), is_plain); };
  return at::globalContext().userEnabledMkldnn() && is_plain(input) && are_plain(hx) && are_plain(params) &&
         is_supported(input.scalar_type()) && input.numel() != 0 && hx.size() == 2 &&
         hx[0].sizes() == hx[1].sizes(); // no projections
}

struct Layers : Recurrent {
  bool batch_first;

  // Of one direction of one layer: two weights and two biases.
  std::array<at::Tensor, 4> params_of(int64_t index) const {
    const int64_t first = index * (has_biases ? 4 : 2);
    const at::Tensor& weight = params[first];
    const at::Tensor& recurrent = params[first + 1];
    return has_biases ? std::array{weight, recurrent, params[first + 2], params[first + 3]}
                      : std::array{weight, recurrent, at::zeros_like(weight), at::zeros_like(recurrent)};
  }
};

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

LayerResult run_layer(
    const Layers& layers,
    int64_t index,
    const at::Tensor& input,
    const at::Tensor& hidden,
    const at::Tensor& cell) {
  const auto params = layers.params_of(index);
  const bool reverse = index % layers.directions() == 1;
  if (!c10::GradMode::is_enabled()) {
    return infer_layer().call(input, params, hidden, cell, reverse, layers.has_biases);
  }
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
      layers.num_layers,
      layers.has_biases,
      layers.bidirectional,
      layers.batch_first,
      layers.train);
  return {output, next_hidden, next_cell};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> run_layers(const Layers& layers, at::Tensor input, at::TensorList hx) {
  const at::Tensor hidden = hx[0].contiguous();
  const at::Tensor cell = hx[1].contiguous();
  std::vector<at::Tensor> last_hidden;
  std::vector<at::Tensor> last_cell;
  at::Tensor current = (layers.batch_first ? input.transpose(0, 1) : input).contiguous();
  for (int64_t layer = 0; layer < layers.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < layers.directions(); ++direction) {
      const int64_t index = layer * layers.directions() + direction;
      auto [output, next_hidden, next_cell] = run_layer(layers, index, current, hidden[index], cell[index]);
      outputs.push_back(output);
      last_hidden.push_back(next_hidden);
      last_cell.push_back(next_cell);
    }
    current = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (layers.dropout != 0 && layers.train && layer < layers.num_layers - 1) {
      current = at::dropout(current, layers.dropout, /*train=*/true);
    }
  }
  return {layers.batch_first ? current.transpose(0, 1) : current, at::stack(last_hidden, 0), at::stack(last_cell, 0)};
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
  const Recurrent network{params, has_biases, num_layers, dropout, train, bidirectional};
  if (can_run_layers(input, hx, params)) {
    return run_layers({network, batch_first}, input, hx);
  }
  const at::Tensor steps_first = batch_first ? input.transpose(0, 1) : input;
  if (hx.size() != 2 || !can_run_recurrent(network, steps_first, hx.vec())) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  auto [output, state] = run_recurrent(RecurrentCell::kLstm, network, steps_first, hx.vec());
  return {batch_first ? output.transpose_(0, 1) : output, state[0], state[1]};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_packed(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  const Recurrent network{params, has_biases, num_layers, dropout, train, bidirectional};
  if (hx.size() != 2 || !can_run_packed(network, data, batch_sizes, hx.vec())) {
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional);
  }
  auto [output, state] = run_packed(RecurrentCell::kLstm, network, data, batch_sizes, hx.vec());
  return {output, state[0], state[1]};
}

} // namespace lazyplug::native
