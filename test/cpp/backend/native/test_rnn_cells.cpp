#include "test/cpp/backend/native/native_test.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kCellBatch = 2;
constexpr int64_t kCellInput = 3;
constexpr int64_t kCellHidden = 4;

class NativeRnnCells : public NativeTest {
 protected:
  static Tensors weights(int64_t gates) {
    return {
        at::randn({gates * kCellHidden, kCellInput}),
        at::randn({gates * kCellHidden, kCellHidden}),
        at::randn({gates * kCellHidden}),
        at::randn({gates * kCellHidden})};
  }

  const at::Tensor input = at::randn({kCellBatch, kCellInput});
  const at::Tensor h = at::randn({kCellBatch, kCellHidden});
  const at::Tensor c = at::randn({kCellBatch, kCellHidden});
};

TEST_F(NativeRnnCells, LstmIsThatOfTheCpu) {
  const Tensors w = weights(4);
  const Tensors l = to_lazy(w);
  const auto expected = at::lstm_cell(input, {h, c}, w[0], w[1], w[2], w[3]);
  const auto actual = at::lstm_cell(to_lazy(input), {to_lazy(h), to_lazy(c)}, l[0], l[1], l[2], l[3]);
  expect_equal(std::get<0>(actual), std::get<0>(expected));
  expect_equal(std::get<1>(actual), std::get<1>(expected));
}

TEST_F(NativeRnnCells, GruIsThatOfTheCpu) {
  const Tensors w = weights(3);
  const Tensors l = to_lazy(w);
  expect_equal(
      at::gru_cell(to_lazy(input), to_lazy(h), l[0], l[1], l[2], l[3]),
      at::gru_cell(input, h, w[0], w[1], w[2], w[3]));
}

TEST_F(NativeRnnCells, BiasIsOptional) {
  const Tensors w = weights(3);
  const Tensors l = to_lazy(w);
  expect_equal(at::gru_cell(to_lazy(input), to_lazy(h), l[0], l[1]), at::gru_cell(input, h, w[0], w[1]));
}

TEST_F(NativeRnnCells, LstmGradientsAreThoseOfTheCpu) {
  const at::Tensor gates = at::randn({kCellBatch, 4 * kCellHidden}).requires_grad_();
  const at::Tensor state = c.clone().requires_grad_();
  const auto parts = gates.chunk(4, 1);
  const at::Tensor cy = parts[1].sigmoid() * state + parts[0].sigmoid() * parts[2].tanh();
  const at::Tensor hy = parts[3].sigmoid() * cy.tanh();
  const at::Tensor grad_hy = at::randn_like(hy);
  const at::Tensor grad_cy = at::randn_like(cy);
  ((hy * grad_hy).sum() + (cy * grad_cy).sum()).backward();

  const at::Tensor zeros = to_lazy(at::zeros({kCellBatch, 4 * kCellHidden}));
  const auto [lazy_hy, lazy_cy, workspace] =
      at::_thnn_fused_lstm_cell(to_lazy(gates.detach()), zeros, to_lazy(state.detach()));
  expect_equal(lazy_hy, hy.detach());
  const auto [grad_gates, grad_state, grad_bias] = at::_thnn_fused_lstm_cell_backward_impl(
      to_lazy(grad_hy),
      to_lazy(grad_cy),
      to_lazy(state.detach()),
      lazy_cy,
      workspace,
      /*has_bias=*/true);
  expect_equal(grad_gates, gates.grad());
  expect_equal(grad_state, state.grad());
  expect_equal(grad_bias, gates.grad().sum(0));
}

TEST_F(NativeRnnCells, LstmWithoutGradientsHasNone) {
  const at::Tensor any = to_lazy(c);
  const auto grads = at::_thnn_fused_lstm_cell_backward_impl({}, {}, any, any, any, true);
  EXPECT_FALSE(std::get<0>(grads).defined());
}

TEST_F(NativeRnnCells, GruGradientsAreThoseOfTheCpu) {
  const at::Tensor input_gates = at::randn({kCellBatch, 3 * kCellHidden}).requires_grad_();
  const at::Tensor hidden_gates = at::randn({kCellBatch, 3 * kCellHidden}).requires_grad_();
  const at::Tensor state = h.clone().requires_grad_();
  const auto i = input_gates.chunk(3, 1);
  const auto g = hidden_gates.chunk(3, 1);
  const at::Tensor reset = (i[0] + g[0]).sigmoid();
  const at::Tensor update = (i[1] + g[1]).sigmoid();
  const at::Tensor candidate = (i[2] + reset * g[2]).tanh();
  const at::Tensor hy = (1 - update) * candidate + update * state;
  const at::Tensor grad = at::randn_like(hy);
  (hy * grad).sum().backward();

  const auto [lazy_hy, workspace] =
      at::_thnn_fused_gru_cell(to_lazy(input_gates.detach()), to_lazy(hidden_gates.detach()), to_lazy(state.detach()));
  expect_equal(lazy_hy, hy.detach());
  const auto [grad_input, grad_hidden, grad_state, input_bias, hidden_bias] =
      at::_thnn_fused_gru_cell_backward(to_lazy(grad), workspace, /*has_bias=*/true);
  expect_equal(grad_input, input_gates.grad());
  expect_equal(grad_hidden, hidden_gates.grad());
  expect_equal(grad_state, state.grad());
  expect_equal(input_bias, input_gates.grad().sum(0));
  expect_equal(hidden_bias, hidden_gates.grad().sum(0));
}

} // namespace
} // namespace lazyplug
