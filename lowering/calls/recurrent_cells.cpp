#include "lowering/calls/recurrent_cells.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "kernels/tile_program.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug::cells {
namespace {

using kernels::Opcode;
using kernels::Slot;
using Optional = std::optional<at::Tensor>;

// Rows of so many parts, as wide as those of the state; or one row for all of them.
bool has_parts(const at::Tensor& tensor, const at::Tensor& state, int64_t num_parts) {
  const bool is_row = tensor.dim() == 1;
  return is_plain_float(tensor) && (is_row || (tensor.dim() == 2 && tensor.size(0) == state.size(0))) &&
         tensor.size(-1) == num_parts * state.size(1);
}

Slot part(Slot first, int index) {
  return static_cast<Slot>(first + index);
}
std::optional<Slot> part(std::optional<Slot> first, int index) {
  return first ? std::optional(part(*first, index)) : std::nullopt;
}

// Slots of gates, each of which is a sum of two, that of the input and that of the state, with a bias for each of
// these, or none.
struct Gates {
  Slot input;
  Slot hidden;
  std::optional<Slot> input_bias;
  std::optional<Slot> hidden_bias;

  Gates gate(int index) const {
    return {part(input, index), part(hidden, index), part(input_bias, index), part(hidden_bias, index)};
  }
};

// A program that runs for each row of the batch. Its slots are parts of rows of tensors, then those without memory.
class Cell {
 public:
  explicit Cell(const at::Tensor& state) : state_(state), batch_(state.size(0)), width_(state.size(1)) {
    program_.num_numbers = 1; // the factor of sums
  }

  // The first of the slots for as many parts of what is read.
  Slot read(const at::Tensor& tensor, int64_t num_parts = 1) {
    TORCH_CHECK(has_parts(tensor, state_, num_parts), "expected ", num_parts, " parts for a state of ", state_.sizes());
    const at::Tensor& kept = kept_.emplace_back(tensor.stride(-1) == 1 ? tensor : tensor.contiguous());
    return add_parts(const_cast<float*>(kept.const_data_ptr<float>()), kept.dim() == 1 ? 0 : kept.stride(0), num_parts);
  }
  std::optional<Slot> read_if_there(const Optional& tensor, int64_t num_parts = 1) {
    return tensor && tensor->defined() ? std::optional(read(*tensor, num_parts)) : std::nullopt;
  }

  Gates read_gates(
      int64_t num_gates,
      const at::Tensor& input,
      const at::Tensor& hidden,
      const Optional& input_bias,
      const Optional& hidden_bias) {
    return {
        read(input, num_gates),
        read(hidden, num_gates),
        read_if_there(input_bias, num_gates),
        read_if_there(hidden_bias, num_gates)};
  }

  at::Tensor make(int64_t num_parts = 1) const {
    return at::detail::empty_cpu({batch_, num_parts * width_}, at::kFloat);
  }
  Slot write(const at::Tensor& result, int64_t num_parts = 1) {
    return add_parts(result.mutable_data_ptr<float>(), result.stride(0), num_parts);
  }
  // After all slots with memory.
  Slot temporary() {
    return static_cast<Slot>(parts_.size() + num_temporaries_++);
  }

  void add(Opcode opcode, Slot out, std::initializer_list<Slot> inputs) {
    kernels::Instruction instruction{opcode, out};
    std::copy(inputs.begin(), inputs.end(), instruction.inputs);
    program_.instructions.push_back(instruction);
  }
  // Of one gate. `spare` is a slot that may be written.
  void add_sum(Slot out, const Gates& gate, Slot spare) {
    const Slot input = add_bias(out, gate.input, gate.input_bias);
    add(Opcode::kAdd, out, {input, add_bias(spare, gate.hidden, gate.hidden_bias)});
  }
  // What is there with its bias: itself, or `out`.
  Slot add_bias(Slot out, Slot gate, std::optional<Slot> bias) {
    if (!bias) {
      return gate;
    }
    add(Opcode::kAdd, out, {gate, *bias});
    return out;
  }
  // The gradient, or zeros in a slot without memory.
  Slot or_zeros(std::optional<Slot> gradient) {
    const Slot slot = gradient ? *gradient : temporary();
    if (!gradient) {
      add(Opcode::kZero, slot, {});
    }
    return slot;
  }

  void run() {
    program_.num_memory = static_cast<uint8_t>(parts_.size());
    program_.num_slots = static_cast<uint8_t>(parts_.size() + num_temporaries_);
    constexpr double kOne = 1;
    std::vector<void*> memory;
    memory.reserve(batch_ * parts_.size());
    for (int64_t row = 0; row < batch_; ++row) {
      for (const Part& part : parts_) {
        memory.push_back(part.data + row * part.stride);
      }
    }
    std::vector<kernels::Row> rows;
    for (int64_t row = 0; row < batch_; ++row) {
      rows.push_back({width_, memory.data() + row * parts_.size(), &kOne});
    }
    kernels::run(program_, rows);
  }

 private:
  struct Part {
    float* data;
    int64_t stride; // from row to row
  };

  Slot add_parts(float* data, int64_t stride, int64_t num_parts) {
    const auto first = static_cast<Slot>(parts_.size());
    for (int64_t i = 0; i < num_parts; ++i) {
      parts_.push_back({data + i * width_, stride});
    }
    return first;
  }

  const at::Tensor& state_;
  const int64_t batch_;
  const int64_t width_;
  kernels::Program program_;
  std::vector<Part> parts_;
  std::vector<at::Tensor> kept_;
  size_t num_temporaries_ = 0;
};

// Of an LSTM, in the order in which they lie.
enum LstmGate : int { kIn, kForget, kCell, kOut };

std::tuple<at::Tensor, at::Tensor, at::Tensor> run_lstm(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const Optional& input_bias,
    const Optional& hidden_bias) {
  Cell cell(cx);
  const Gates given = cell.read_gates(kLstmGates, input_gates, hidden_gates, input_bias, hidden_bias);
  const Slot c = cell.read(cx);
  const at::Tensor hy = cell.make();
  const at::Tensor cy = cell.make();
  const at::Tensor workspace = cell.make(kLstmGates);
  const Slot h_out = cell.write(hy);
  const Slot c_out = cell.write(cy);
  const Slot gates = cell.write(workspace, kLstmGates);
  for (int i = 0; i < kLstmGates; ++i) {
    const Slot gate = part(gates, i);
    cell.add_sum(gate, given.gate(i), h_out);
    cell.add(i == kCell ? Opcode::kTanh : Opcode::kSigmoid, gate, {gate});
  }
  cell.add(Opcode::kMul, c_out, {part(gates, kForget), c});
  cell.add(Opcode::kMul, h_out, {part(gates, kIn), part(gates, kCell)});
  cell.add(Opcode::kAdd, c_out, {c_out, h_out});
  cell.add(Opcode::kTanh, h_out, {c_out});
  cell.add(Opcode::kMul, h_out, {part(gates, kOut), h_out});
  cell.run();
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor> run_lstm_backward(
    const Optional& grad_hy,
    const Optional& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace) {
  Cell cell(cy);
  const auto given_h = cell.read_if_there(grad_hy);
  const auto given_c = cell.read_if_there(grad_cy);
  const Slot c_before = cell.read(cx);
  const Slot c_after = cell.read(cy);
  const Slot gates = cell.read(workspace, kLstmGates);
  const at::Tensor grad_gates = cell.make(kLstmGates);
  const at::Tensor grad_cx = cell.make();
  const Slot results = cell.write(grad_gates, kLstmGates);
  const Slot result_c = cell.write(grad_cx);
  const Slot grad_h = cell.or_zeros(given_h);
  const Slot outer_c = cell.or_zeros(given_c);
  const Slot tanh_c = cell.temporary();
  const Slot grad_c = cell.temporary();
  cell.add(Opcode::kTanh, tanh_c, {c_after});
  cell.add(Opcode::kMul, grad_c, {grad_h, part(gates, kOut)});
  cell.add(Opcode::kTanhBackward, grad_c, {grad_c, tanh_c});
  cell.add(Opcode::kAdd, grad_c, {outer_c, grad_c});
  const auto add_gate = [&](int index, Opcode gradient, Slot grad, Slot factor) {
    const Slot result = part(results, index);
    cell.add(Opcode::kMul, result, {grad, factor});
    cell.add(gradient, result, {result, part(gates, index)});
  };
  add_gate(kIn, Opcode::kSigmoidBackward, grad_c, part(gates, kCell));
  add_gate(kForget, Opcode::kSigmoidBackward, grad_c, c_before);
  add_gate(kCell, Opcode::kTanhBackward, grad_c, part(gates, kIn));
  add_gate(kOut, Opcode::kSigmoidBackward, grad_h, tanh_c);
  cell.add(Opcode::kMul, result_c, {grad_c, part(gates, kForget)});
  cell.run();
  return {grad_gates, grad_cx};
}

// Of a GRU's workspace.
enum Saved : int { kReset, kUpdate, kCandidate, kState, kHidden };

std::tuple<at::Tensor, at::Tensor> run_gru(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const Optional& input_bias,
    const Optional& hidden_bias) {
  Cell cell(hx);
  const Gates given = cell.read_gates(kGruGates, input_gates, hidden_gates, input_bias, hidden_bias);
  const Slot h = cell.read(hx);
  const at::Tensor hy = cell.make();
  const at::Tensor workspace = cell.make(kGruSaved);
  const Slot h_out = cell.write(hy);
  const Slot saved = cell.write(workspace, kGruSaved);
  for (const int i : {kReset, kUpdate}) {
    const Slot gate = part(saved, i);
    cell.add_sum(gate, given.gate(i), h_out);
    cell.add(Opcode::kSigmoid, gate, {gate});
  }
  const Slot candidate = part(saved, kCandidate);
  const Slot hidden = part(saved, kHidden);
  const Gates unsummed = given.gate(kCandidate);
  const Slot of_candidate = cell.add_bias(hidden, unsummed.hidden, unsummed.hidden_bias);
  if (of_candidate != hidden) {
    cell.add(Opcode::kCopy, hidden, {of_candidate});
  }
  cell.add(Opcode::kMul, h_out, {part(saved, kReset), hidden});
  const Slot input = cell.add_bias(candidate, unsummed.input, unsummed.input_bias);
  cell.add(Opcode::kAdd, candidate, {input, h_out});
  cell.add(Opcode::kTanh, candidate, {candidate});
  cell.add(Opcode::kCopy, part(saved, kState), {h});
  cell.add(Opcode::kSub, h_out, {h, candidate});
  cell.add(Opcode::kMul, h_out, {part(saved, kUpdate), h_out});
  cell.add(Opcode::kAdd, h_out, {candidate, h_out});
  cell.run();
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> run_gru_backward(
    const at::Tensor& grad_hy,
    const at::Tensor& workspace) {
  Cell cell(grad_hy);
  const Slot grad = cell.read(grad_hy);
  const Slot saved = cell.read(workspace, kGruSaved);
  const at::Tensor grad_input = cell.make(kGruGates);
  const at::Tensor grad_hidden = cell.make(kGruGates);
  const at::Tensor grad_hx = cell.make();
  const Slot of_input = cell.write(grad_input, kGruGates);
  const Slot of_hidden = cell.write(grad_hidden, kGruGates);
  const Slot of_state = cell.write(grad_hx);
  const auto add_gate = [&](int index, Slot product) {
    const Slot result = part(of_input, index);
    const Opcode gradient = index == kCandidate ? Opcode::kTanhBackward : Opcode::kSigmoidBackward;
    cell.add(gradient, result, {product, part(saved, index)});
  };
  const auto add_copy = [&](int index) { cell.add(Opcode::kCopy, part(of_hidden, index), {part(of_input, index)}); };
  const Slot update = part(of_input, kUpdate);
  cell.add(Opcode::kSub, update, {part(saved, kState), part(saved, kCandidate)});
  cell.add(Opcode::kMul, update, {grad, update});
  add_gate(kUpdate, update);
  add_copy(kUpdate);
  cell.add(Opcode::kMul, of_state, {grad, part(saved, kUpdate)});
  const Slot candidate = part(of_input, kCandidate);
  cell.add(Opcode::kSub, candidate, {grad, of_state});
  add_gate(kCandidate, candidate);
  cell.add(Opcode::kMul, part(of_hidden, kCandidate), {candidate, part(saved, kReset)});
  const Slot reset = part(of_input, kReset);
  cell.add(Opcode::kMul, reset, {candidate, part(saved, kHidden)});
  add_gate(kReset, reset);
  add_copy(kReset);
  cell.run();
  return {grad_input, grad_hidden, grad_hx};
}

// The shapes of results.

at::Tensor shape_of(const at::Tensor& state, int64_t num_parts = 1) {
  return at::empty({state.size(0), num_parts * state.size(1)}, state.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> infer_lstm(
    const at::Tensor& /*input_gates*/,
    const at::Tensor& /*hidden_gates*/,
    const at::Tensor& cx,
    const Optional& /*input_bias*/,
    const Optional& /*hidden_bias*/) {
  return {shape_of(cx), shape_of(cx), shape_of(cx, kLstmGates)};
}

std::tuple<at::Tensor, at::Tensor> infer_lstm_backward(
    const Optional& /*grad_hy*/,
    const Optional& /*grad_cy*/,
    const at::Tensor& cx,
    const at::Tensor& /*cy*/,
    const at::Tensor& /*workspace*/) {
  return {shape_of(cx, kLstmGates), shape_of(cx)};
}

std::tuple<at::Tensor, at::Tensor> infer_gru(
    const at::Tensor& /*input_gates*/,
    const at::Tensor& /*hidden_gates*/,
    const at::Tensor& hx,
    const Optional& /*input_bias*/,
    const Optional& /*hidden_bias*/) {
  return {shape_of(hx), shape_of(hx, kGruSaved)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> infer_gru_backward(
    const at::Tensor& grad_hy,
    const at::Tensor& /*workspace*/) {
  return {shape_of(grad_hy, kGruGates), shape_of(grad_hy, kGruGates), shape_of(grad_hy)};
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  m.def(
      "lstm_cell(Tensor input_gates, Tensor hidden_gates, Tensor cx, Tensor? input_bias, Tensor? hidden_bias) -> "
      "(Tensor, Tensor, Tensor)");
  m.def(
      "lstm_cell_backward(Tensor? grad_hy, Tensor? grad_cy, Tensor cx, Tensor cy, Tensor workspace) -> "
      "(Tensor, Tensor)");
  m.def(
      "gru_cell(Tensor input_gates, Tensor hidden_gates, Tensor hx, Tensor? input_bias, Tensor? hidden_bias) -> "
      "(Tensor, Tensor)");
  m.def("gru_cell_backward(Tensor grad_hy, Tensor workspace) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(lazyplug, CPU, m) {
  m.impl("lstm_cell", run_lstm);
  m.impl("lstm_cell_backward", run_lstm_backward);
  m.impl("gru_cell", run_gru);
  m.impl("gru_cell_backward", run_gru_backward);
}
TORCH_LIBRARY_IMPL(lazyplug, Meta, m) {
  m.impl("lstm_cell", infer_lstm);
  m.impl("lstm_cell_backward", infer_lstm_backward);
  m.impl("gru_cell", infer_gru);
  m.impl("gru_cell_backward", infer_gru_backward);
}

template <typename Function>
c10::TypedOperatorHandle<Function> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

} // namespace

bool can_compute(const at::Tensor& state, int64_t num_parts, Tensors tensors) {
  return computes_functions() && state.dim() == 2 && is_plain_float(state) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
           return !tensor.defined() || has_parts(tensor, state, num_parts);
         });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const Optional& input_bias,
    const Optional& hidden_bias) {
  static const auto op = find<decltype(lstm)>("lazyplug::lstm_cell");
  return op.call(input_gates, hidden_gates, cx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor> lstm_backward(
    const Optional& grad_hy,
    const Optional& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace) {
  static const auto op = find<decltype(lstm_backward)>("lazyplug::lstm_cell_backward");
  return op.call(grad_hy, grad_cy, cx, cy, workspace);
}

std::tuple<at::Tensor, at::Tensor> gru(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const Optional& input_bias,
    const Optional& hidden_bias) {
  static const auto op = find<decltype(gru)>("lazyplug::gru_cell");
  return op.call(input_gates, hidden_gates, hx, input_bias, hidden_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_backward(const at::Tensor& grad_hy, const at::Tensor& workspace) {
  static const auto op = find<decltype(gru_backward)>("lazyplug::gru_cell_backward");
  return op.call(grad_hy, workspace);
}

} // namespace lazyplug::cells
