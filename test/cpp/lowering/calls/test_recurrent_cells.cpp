#include "lowering/calls/recurrent_cells.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug::cells {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kBatch = 5;

Tensors to_double(const Tensors& tensors, bool with_gradients = false) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.defined() ? tensor.to(at::kDouble).requires_grad_(with_gradients) : tensor);
  }
  return result;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(actual.is_contiguous());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(actual.to(at::kDouble), expected, 1e-5, 1e-6)) << actual.sizes();
}

at::Tensor sum_of(const at::Tensor& gates, const at::Tensor& bias) {
  return bias.defined() ? gates + bias : gates;
}

// input gates, hidden gates, state, and two biases, which may be undefined. Rows of gates are parts of longer ones.
Tensors draw(int64_t num_gates, int64_t width, bool has_biases) {
  const auto rows = [&] { return at::randn({kBatch, num_gates * width + 3}).narrow(1, 1, num_gates * width); };
  const auto bias = [&] { return has_biases ? at::randn({num_gates * width}) : at::Tensor(); };
  return {rows(), rows(), at::randn({kBatch, width}), bias(), bias()};
}

// torch.nn.LSTMCell. Returns the states and the gates.
Tensors expected_lstm(const Tensors& x) {
  const auto gates = (sum_of(x[0], x[3]) + sum_of(x[1], x[4])).chunk(4, 1);
  const Tensors parts = {gates[0].sigmoid(), gates[1].sigmoid(), gates[2].tanh(), gates[3].sigmoid()};
  const at::Tensor cy = parts[1] * x[2] + parts[0] * parts[2];
  return {parts[3] * cy.tanh(), cy, at::cat(parts, 1)};
}

// torch.nn.GRUCell.
at::Tensor expected_gru(const Tensors& x) {
  const auto input = sum_of(x[0], x[3]).chunk(3, 1);
  const auto hidden = sum_of(x[1], x[4]).chunk(3, 1);
  const at::Tensor reset = (input[0] + hidden[0]).sigmoid();
  const at::Tensor update = (input[1] + hidden[1]).sigmoid();
  const at::Tensor candidate = (input[2] + reset * hidden[2]).tanh();
  return (1 - update) * candidate + update * x[2];
}

TEST(RecurrentCells, LstmIsThatOfFormulas) {
  for (const int64_t width : {1, 7, 16, 64, 1000}) {
    for (const bool has_biases : {false, true}) {
      const Tensors x = draw(kLstmGates, width, has_biases);
      const auto [hy, cy, workspace] = lstm(x[0], x[1], x[2], x[3], x[4]);
      const Tensors expected = expected_lstm(to_double(x));
      expect_close(hy, expected[0]);
      expect_close(cy, expected[1]);
      expect_close(workspace, expected[2]);
    }
  }
}

TEST(RecurrentCells, LstmHasItsGradients) {
  const Tensors x = draw(kLstmGates, 33, /*has_biases=*/false);
  const auto [hy, cy, workspace] = lstm(x[0], x[1], x[2], {}, {});
  const at::Tensor grad_hy = at::randn({kBatch, 1}).expand({kBatch, 33});
  const at::Tensor grad_cy = at::randn({33, kBatch}).t();
  for (const int wanted : {1, 2, 3}) {
    const at::Tensor of_h = wanted & 1 ? grad_hy : at::Tensor();
    const at::Tensor of_c = wanted & 2 ? grad_cy : at::Tensor();
    const Tensors leaves = to_double(x, /*with_gradients=*/true);
    const Tensors results = expected_lstm(leaves);
    at::Tensor loss = at::zeros({}, at::kDouble);
    loss = of_h.defined() ? loss + (results[0] * of_h).sum() : loss;
    loss = of_c.defined() ? loss + (results[1] * of_c).sum() : loss;
    loss.backward();
    const auto [grad_gates, grad_cx] = lstm_backward(of_h, of_c, x[2], cy, workspace);
    expect_close(grad_gates, leaves[0].grad());
    expect_close(grad_cx, leaves[2].grad());
  }
}

TEST(RecurrentCells, GruIsThatOfFormulasAndHasItsGradients) {
  for (const int64_t width : {1, 7, 16, 64}) {
    for (const bool has_biases : {false, true}) {
      const Tensors x = draw(kGruGates, width, has_biases);
      const auto [hy, workspace] = gru(x[0], x[1], x[2], x[3], x[4]);
      EXPECT_EQ(workspace.sizes(), (c10::IntArrayRef{kBatch, kGruSaved * width}));
      const Tensors leaves = to_double(x, /*with_gradients=*/true);
      const at::Tensor expected = expected_gru(leaves);
      expect_close(hy, expected.detach());
      const at::Tensor grad = at::randn({width, kBatch}).t();
      (expected * grad).sum().backward();
      const auto [grad_input, grad_hidden, grad_hx] = gru_backward(grad, workspace);
      expect_close(grad_input, leaves[0].grad());
      expect_close(grad_hidden, leaves[1].grad());
      expect_close(grad_hx, leaves[2].grad());
    }
  }
}

TEST(RecurrentCells, MayBeEmpty) {
  const at::Tensor gates = at::randn({0, 12});
  const auto [hy, cy, workspace] = lstm(gates, gates, at::randn({0, 3}), {}, {});
  EXPECT_EQ(hy.sizes(), (c10::IntArrayRef{0, 3}));
  EXPECT_EQ(workspace.sizes(), (c10::IntArrayRef{0, 12}));
}

TEST(RecurrentCells, ShapesAreInferred) {
  const auto meta = [](int64_t columns) { return at::empty({kBatch, columns}, at::kMeta); };
  const auto [hy, cy, of_lstm] = lstm(meta(12), meta(12), meta(3), {}, {});
  const auto [grad_gates, grad_cx] = lstm_backward(hy, {}, cy, cy, of_lstm);
  const auto [next, of_gru] = gru(meta(9), meta(9), meta(3), {}, {});
  const auto [grad_input, grad_hidden, grad_hx] = gru_backward(next, of_gru);
  for (const at::Tensor& state : {hy, cy, grad_cx, next, grad_hx}) {
    EXPECT_EQ(state.sizes(), (c10::IntArrayRef{kBatch, 3}));
  }
  for (const at::Tensor& gates : {of_lstm, grad_gates}) {
    EXPECT_EQ(gates.sizes(), (c10::IntArrayRef{kBatch, 12}));
  }
  EXPECT_EQ(of_gru.size(1), 15);
  EXPECT_EQ(grad_input.size(1), 9);
  EXPECT_EQ(grad_hidden.size(1), 9);
}

TEST(RecurrentCells, TakeFloatsThatFit) {
  if (!computes_functions()) {
    GTEST_SKIP() << "there are no functions of our own here";
  }
  const at::Tensor state = at::randn({kBatch, 4});
  const auto takes = [&](const at::Tensor& gates) { return can_compute(state, kLstmGates, {gates}); };
  EXPECT_TRUE(takes(at::randn({kBatch, 16})));
  EXPECT_TRUE(takes(at::randn({16})));
  EXPECT_TRUE(takes({}));
  EXPECT_FALSE(takes(at::randn({kBatch, 12})));
  EXPECT_FALSE(takes(at::randn({1, 16})));
  EXPECT_FALSE(takes(at::randn({kBatch, 16}, at::kDouble)));
  EXPECT_FALSE(takes(at::randn({1, kBatch, 16})));
  EXPECT_FALSE(can_compute(state.to(at::kDouble), kLstmGates, {}));
  EXPECT_FALSE(can_compute(state[0], kLstmGates, {}));
}

} // namespace
} // namespace lazyplug::cells
