#include "test/cpp/backend/expect_same.h"
#include "test/cpp/backend/native/native_test.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kSteps = 3;
constexpr int64_t kLstmBatch = 2;
constexpr int64_t kLstmInput = 4;
constexpr int64_t kLstmHidden = 5;

struct Settings {
  int64_t num_layers = 1;
  bool has_biases = true;
  bool bidirectional = false;
  bool batch_first = false;
  int64_t projection = 0;
  at::ScalarType dtype = at::kFloat;

  int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
};

// The arguments of a call, on the CPU or on the device.
struct Arguments {
  at::Tensor input;
  Tensors state;
  Tensors params;
};

class NativeLstm : public NativeTest {
 protected:
  static Arguments make(const Settings& s) {
    const int64_t output = s.projection ? s.projection : kLstmHidden;
    const int64_t num_states = s.num_layers * s.directions();
    Arguments arguments;
    const auto random = [&](c10::IntArrayRef sizes) { return at::randn(sizes, s.dtype); };
    arguments.input = random({s.batch_first ? kLstmBatch : kSteps, s.batch_first ? kSteps : kLstmBatch, kLstmInput});
    arguments.state = {random({num_states, kLstmBatch, output}), random({num_states, kLstmBatch, kLstmHidden})};
    for (int64_t i = 0; i < num_states; ++i) {
      const int64_t width = i < s.directions() ? kLstmInput : output * s.directions();
      arguments.params.push_back(random({4 * kLstmHidden, width}));
      arguments.params.push_back(random({4 * kLstmHidden, output}));
      for (int bias = 0; s.has_biases && bias < 2; ++bias) {
        arguments.params.push_back(random({4 * kLstmHidden}));
      }
      if (s.projection) {
        arguments.params.push_back(random({s.projection, kLstmHidden}));
      }
    }
    return arguments;
  }
  static Arguments on_device(Arguments arguments) {
    arguments.input = to_lazy(arguments.input);
    arguments.state = to_lazy(arguments.state);
    arguments.params = to_lazy(arguments.params);
    return arguments;
  }
  static auto run(const Arguments& a, const Settings& s, double dropout = 0, bool train = false) {
    return at::lstm(
        a.input,
        a.state,
        a.params,
        s.has_biases,
        s.num_layers,
        dropout,
        train,
        s.bidirectional,
        s.batch_first);
  }

  static void
  check(const Settings& settings, int64_t whole_layers, void (*expect)(const at::Tensor&, const at::Tensor&)) {
    const Arguments arguments = make(settings);
    const auto [output, hidden, cell] = run(on_device(arguments), settings);
    EXPECT_EQ(state_of(output), State::kPending);
    const auto [expected_output, expected_hidden, expected_cell] = run(arguments, settings);
    expect(output, expected_output);
    expect(hidden, expected_hidden);
    expect(cell, expected_cell);
    EXPECT_EQ(count("lazy::mkldnn_rnn_layer"), whole_layers);
  }
};

TEST_F(NativeLstm, ALayerIsOneOp) {
  check({}, 1, expect_same);
}

TEST_F(NativeLstm, EachLayerAndDirectionIsOneOp) {
  check({.num_layers = 3, .bidirectional = true}, 6, expect_same);
}

TEST_F(NativeLstm, BiasesAreOptional) {
  check({.num_layers = 2, .has_biases = false}, 2, expect_same);
}

TEST_F(NativeLstm, TheBatchMayComeFirst) {
  check({.num_layers = 2, .bidirectional = true, .batch_first = true}, 4, expect_same);
}

TEST_F(NativeLstm, WhatOneDnnDoesNotKnowIsMadeOfCells) {
  check({.dtype = at::kDouble}, 0, expect_equal);
  check({.projection = 3}, 0, expect_equal);
}

TEST_F(NativeLstm, NorIsItAskedIfTheUserSaysSo) {
  at::globalContext().setUserEnabledMkldnn(false);
  check({}, 0, expect_equal);
  at::globalContext().setUserEnabledMkldnn(true);
}

// The CPU then asks oneDNN for an inference, which may round in another way.
TEST_F(NativeLstm, LayersWithoutGradientsAreInferences) {
  const c10::InferenceMode no_gradients;
  for (const bool has_biases : {false, true}) {
    reset_metrics();
    check({.num_layers = 3, .has_biases = has_biases, .bidirectional = true, .batch_first = true}, 0, expect_same);
    EXPECT_EQ(count("lazy::lstm_layer_inference"), 6);
  }
}

TEST_F(NativeLstm, LargeInferencesToo) {
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor input = at::randn({9, 8, 64});
  const at::Tensor state = at::zeros({2, 8, 64});
  Arguments arguments{input, {state, state}, {}};
  for (int i = 0; i < 4; ++i) {
    arguments.params.push_back(at::randn({256, 64}) / 8);
  }
  const Settings settings{.num_layers = 2, .has_biases = false};
  expect_same(std::get<0>(run(on_device(arguments), settings)), std::get<0>(run(arguments, settings)));
  EXPECT_EQ(count("lazy::lstm_layer_inference"), 2);
}

// What the gradients are is tested in Python, which autograd needs for devices.
TEST_F(NativeLstm, ResultsCanBeDifferentiated) {
  const Settings settings{.num_layers = 2};
  Arguments lazy = on_device(make(settings));
  for (at::Tensor& tensor : lazy.params) {
    tensor.requires_grad_();
  }
  const auto [output, hidden, cell] = run(lazy, settings, /*dropout=*/0, /*train=*/true);
  for (const at::Tensor& result : {output, hidden, cell}) {
    EXPECT_TRUE(result.requires_grad());
    EXPECT_EQ(state_of(result), State::kPending);
  }
}

TEST_F(NativeLstm, DropsBetweenLayersInTrainingOnly) {
  const Settings settings{.num_layers = 2};
  const Arguments arguments = on_device(make(settings));
  const auto output = [&](double dropout, bool train) {
    at::Generator generator = at::globalContext().defaultGenerator(lazy_device(0));
    generator.set_current_seed(3);
    return std::get<0>(run(arguments, settings, dropout, train)).cpu();
  };
  const at::Tensor whole = output(0.5, false);
  EXPECT_TRUE(at::equal(output(0, true), whole));
  EXPECT_FALSE(at::equal(output(0.5, true), whole));
  EXPECT_TRUE(at::equal(output(0.5, true), output(0.5, true)));
}

TEST_F(NativeLstm, MistakesRaiseAsOnTheCpu) {
  Arguments cpu = make({});
  cpu.state[0] = cpu.state[0].select(2, 0).unsqueeze(2);
  const Arguments lazy = on_device(cpu);
  EXPECT_EQ(error_of([&] { run(lazy, {}); }), error_of([&] { run(cpu, {}); }));
}

} // namespace
} // namespace lazyplug
