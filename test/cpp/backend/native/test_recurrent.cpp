#include "backend/native/recurrent.h"

#include "test/cpp/backend/expect_same.h"
#include "test/cpp/backend/native/native_test.h"

namespace lazyplug::native {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kSteps = 3;
constexpr int64_t kBatch = 2;
constexpr int64_t kInput = 4;
constexpr int64_t kHidden = 5;

class NativeRecurrent : public NativeTest {
 protected:
  // Of two layers in two directions.
  static Tensors weights(int64_t gates) {
    Tensors weights;
    for (int64_t i = 0; i < 4; ++i) {
      weights.push_back(at::randn({gates * kHidden, i < 2 ? kInput : 2 * kHidden}));
      weights.push_back(at::randn({gates * kHidden, kHidden}));
      weights.push_back(at::randn({gates * kHidden}));
      weights.push_back(at::randn({gates * kHidden}));
    }
    return weights;
  }
  static Recurrent network(at::TensorList params) {
    return {params, /*has_biases=*/true, /*num_layers=*/2, /*dropout=*/0, /*train=*/false, /*bidirectional=*/true};
  }

  const at::Tensor input = at::randn({kSteps, kBatch, kInput});
  const at::Tensor state = at::randn({4, kBatch, kHidden});
  const at::Tensor data = at::randn({4, kInput});
  const at::Tensor batch_sizes = at::tensor({2, 1, 1}, at::kLong);
};

TEST_F(NativeRecurrent, PaddedSequencesAsOnTheCpu) {
  const auto run = [&](auto op, const Tensors& w, const at::Tensor& x, const at::Tensor& h) {
    return op(x, h, w, true, 2, 0.0, false, true, false);
  };
  const auto check = [&](auto op, int64_t gates) {
    const Tensors w = weights(gates);
    const auto [expected, expected_state] = run(op, w, input, state);
    const auto [output, last] = run(op, to_lazy(w), to_lazy(input), to_lazy(state));
    EXPECT_EQ(state_of(output), State::kPending);
    expect_same(output, expected);
    expect_same(last, expected_state);
  };
  check([](auto&&... args) { return at::gru(args...); }, 3);
  check([](auto&&... args) { return at::rnn_tanh(args...); }, 1);
  check([](auto&&... args) { return at::rnn_relu(args...); }, 1);
}

TEST_F(NativeRecurrent, PackedSequencesAsOnTheCpu) {
  const Tensors w = weights(4);
  const auto run = [&](const Tensors& params, const at::Tensor& x, const Tensors& h) {
    return at::lstm(x, batch_sizes, h, params, true, 2, 0.0, false, true);
  };
  const auto [expected, expected_hidden, expected_cell] = run(w, data, {state, state});
  const auto [output, hidden, cell] = run(to_lazy(w), to_lazy(data), to_lazy({state, state}));
  EXPECT_EQ(state_of(output), State::kPending);
  expect_same(output, expected);
  expect_same(hidden, expected_hidden);
  expect_same(cell, expected_cell);
}

TEST_F(NativeRecurrent, InputsAreMultipliedAtOnce) {
  const Tensors w = to_lazy(weights(3));
  run_recurrent(RecurrentCell::kGru, network(w), to_lazy(input), {to_lazy(state)});
  EXPECT_EQ(count("lazy::addmm") + count("lazy::mm"), 4 * (1 + kSteps));
}

TEST_F(NativeRecurrent, WhatItCannotRun) {
  const Tensors w = to_lazy(weights(3));
  const at::Tensor x = to_lazy(input);
  const at::Tensor h = to_lazy(state);
  EXPECT_TRUE(can_run_recurrent(network(w), x, {h}));
  EXPECT_FALSE(can_run_recurrent(network(w), input, {h}));
  EXPECT_FALSE(can_run_recurrent(network(w), x, {state}));
  EXPECT_FALSE(can_run_recurrent(network(w), x.narrow(0, 0, 0), {h}));
  EXPECT_FALSE(can_run_recurrent(network(w), x, {h.narrow(0, 0, 3)}));
  EXPECT_FALSE(can_run_recurrent(network(at::TensorList(w).slice(1)), x, {h}));
  EXPECT_TRUE(can_run_packed(network(w), to_lazy(data), batch_sizes, {h}));
  EXPECT_FALSE(can_run_packed(network(w), to_lazy(data), to_lazy(batch_sizes), {h}));
  EXPECT_FALSE(can_run_packed(network(w), to_lazy(data), batch_sizes.narrow(0, 0, 0), {h}));
}

} // namespace
} // namespace lazyplug::native
