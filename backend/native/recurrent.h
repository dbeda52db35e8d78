#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "backend/native/kernels.h"

namespace lazyplug::native {

// A recurrent network, as torch.nn lists its parameters.
struct Recurrent {
  at::TensorList params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;

  int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
};

// The hidden state, and for an LSTM the cell state: of a layer in one direction, or of all of them, stacked.
using RecurrentState = std::vector<at::Tensor>;

enum class RecurrentCell { kTanh, kRelu, kLstm, kGru };

struct RecurrentResult {
  at::Tensor output;
  RecurrentState state;
};

// Of one direction of one layer. Undefined: there is none.
struct RecurrentWeights {
  at::Tensor input;
  at::Tensor hidden;
  at::Tensor input_bias;
  at::Tensor hidden_bias;
  at::Tensor projection;

  RecurrentWeights(const Recurrent& network, const RecurrentState& state, int64_t index);
  at::Tensor input_gates(const at::Tensor& x) const;
  at::Tensor hidden_gates(const at::Tensor& h) const;
  at::Tensor projected(const at::Tensor& h) const;
};

// Runs one direction of a layer on its input, from the first state.
using RunDirection = c10::function_ref<
    RecurrentResult(const RecurrentWeights& weights, const at::Tensor& input, RecurrentState first, bool reverse)>;

// Runs the layers one after the other, each on what the directions of the one before have put out.
RecurrentResult
run_recurrent_layers(const Recurrent& network, at::Tensor input, const RecurrentState& state, RunDirection run);

// PyTorch asks devices for fused cells, step by step. On the CPU it multiplies the inputs of all steps at once, and
// makes cells of ops that round, and can be differentiated, as what they are. These networks do as it does on the CPU,
// op by op; but a cell whose functions are this package's own anyway, and that is not differentiated forwards, is one
// op (lowering/calls/recurrent_cells.h).
//
// Whether they can: nothing is missing or elsewhere, about which PyTorch's own kernel complains.
bool can_run_recurrent(const Recurrent& network, const at::Tensor& input, const RecurrentState& state);
bool can_run_packed(
    const Recurrent& network,
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const RecurrentState& state);

// `input`: [steps, batch, features]. Returns [steps, batch, hidden features of all directions].
RecurrentResult
run_recurrent(RecurrentCell cell, const Recurrent& network, at::Tensor input, const RecurrentState& state);

// `data`: [sum of batch sizes, features], step by step; the batch sizes, on the CPU, never grow.
RecurrentResult run_packed(
    RecurrentCell cell,
    const Recurrent& network,
    at::Tensor data,
    const at::Tensor& batch_sizes,
    const RecurrentState& state);

// The same as lstm(), made of cells.
decltype(&lstm) lstm_of_cells();

// The recurrent networks of torch.nn, padded and packed.
void register_recurrent_ops(torch::Library& library);

} // namespace lazyplug::native
