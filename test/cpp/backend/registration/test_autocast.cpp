#include "backend/registration/autocast.h"

#include <ATen/autocast_mode.h>

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/expect_same.h"

namespace lazyplug {
namespace {

// torch.autocast on both devices, so that a call does the same on each.
class AutocastScope {
 public:
  explicit AutocastScope(at::ScalarType dtype = at::kBFloat16) {
    for (const c10::DeviceType device : kDevices) {
      at::autocast::set_autocast_enabled(device, true);
      at::autocast::set_autocast_dtype(device, dtype);
    }
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    for (const c10::DeviceType device : kDevices) {
      at::autocast::set_autocast_enabled(device, false);
      at::autocast::set_autocast_dtype(device, at::kBFloat16);
    }
  }

 private:
  static constexpr std::array kDevices{c10::DeviceType::CPU, kLazyDevice};
};

class AutocastTest : public BackendTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }

  // Of a call with an argument in several dtypes.
  template <typename Call>
  static void check(Call call, std::initializer_list<at::ScalarType> dtypes = {at::kFloat, at::kBFloat16}) {
    const AutocastScope scope;
    for (const at::ScalarType dtype : dtypes) {
      const at::Tensor cpu = (iota({3, 3}) / 8).to(dtype);
      expect_same(call(to_lazy(cpu)), call(cpu));
    }
  }

  const at::Tensor cpu = iota({3, 3}) / 8;
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(AutocastTest, KnowsTheOpsThatTheCpuKnows) {
  size_t num_ops = 0;
  for (const c10::OperatorHandle& op : aten_ops()) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) {
      ++num_ops;
      EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::AutocastPrivateUse1)) << op.operator_name();
    }
  }
  EXPECT_GT(num_ops, 50);
}

TEST_F(AutocastTest, ProductsAreFast) {
  check([](const at::Tensor& x) { return at::mm(x, x); });
  EXPECT_EQ(count("lazy::copy_"), 2) << "of float32's arguments; those in bfloat16 are as they should be";
  check([](const at::Tensor& x) { return at::addmm(x.select(0, 0), x, x); });
  check([](const at::Tensor& x) { return at::linear(x, x); });
  check([](const at::Tensor& x) { return at::conv1d(x.unsqueeze(0), x.unsqueeze(2)); });
}

TEST_F(AutocastTest, WhatNeedsPrecisionIsExact) {
  check([](const at::Tensor& x) { return at::mse_loss(x, x + 1); });
  check([](const at::Tensor& x) { return at::prod(x); });
  check([](const at::Tensor& x) { return at::smooth_l1_loss(x, x * 2); });
}

TEST_F(AutocastTest, SomeTakeTheWidestType) {
  check([](const at::Tensor& x) { return at::cat({x, x.to(at::kBFloat16)}); });
  check([](const at::Tensor& x) { return at::stack({x.to(at::kBFloat16), x}); });
}

TEST_F(AutocastTest, OthersAreLeftAlone) {
  check([](const at::Tensor& x) { return x + x; });
  check([](const at::Tensor& x) { return x.sum(0); });
}

TEST_F(AutocastTest, NeitherIntegersNorDoublesAreCast) {
  check([](const at::Tensor& x) { return at::mm(x, x); }, {at::kLong, at::kDouble});
}

TEST_F(AutocastTest, TheTypeIsTheRegions) {
  const AutocastScope scope(at::kHalf);
  EXPECT_EQ(at::mm(x, x).dtype(), at::kHalf);
}

TEST_F(AutocastTest, NothingIsCastOutsideARegion) {
  {
    const AutocastScope scope;
    at::mm(x, x);
  }
  expect_same(at::mm(x, x), at::mm(cpu, cpu));
}

TEST_F(AutocastTest, ParametersAreCastOncePerRegion) {
  const at::Tensor weight = to_lazy(cpu).requires_grad_();
  const AutocastScope scope;
  const at::Tensor input = to_lazy(cpu.to(at::kBFloat16));
  (at::linear(input, weight) + at::linear(input, weight)).cpu();
  EXPECT_EQ(count("lazy::mm"), 2);
  EXPECT_EQ(count("lazy::copy_"), 1);
}

// A whole layer is cast at once; one with projections falls apart into ops, of which each has its own policy.
bool has_bfloat16() {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "");
  return op.typed<bool()>().call();
}

TEST_F(AutocastTest, LstmLayersAreThoseOfTheCpu) {
  for (const int64_t projection : {0, 2}) {
    at::manual_seed(1);
    const int64_t output = projection ? projection : 3;
    std::vector<at::Tensor> state{at::randn({1, 2, output}), at::randn({1, 2, 3})};
    std::vector<at::Tensor> params{at::randn({12, 4}), at::randn({12, output})};
    if (projection) {
      params.push_back(at::randn({projection, 3}));
    }
    at::Tensor input = at::randn({5, 2, 4});
    const auto run_as_is = [&] {
      return std::get<0>(at::lstm(input, state, params, /*has_biases=*/false, 1, 0, /*train=*/false, false, false));
    };
    const auto run = [&] {
      const AutocastScope scope;
      return run_as_is();
    };
    // On the CPU, autocast raises where oneDNN would run the layer but has no bfloat16.
    const at::Tensor expected = projection || has_bfloat16() ? run() : run_as_is().to(at::kBFloat16);
    input = to_lazy(input);
    for (std::vector<at::Tensor>* tensors : {&state, &params}) {
      std::transform(tensors->begin(), tensors->end(), tensors->begin(), [](auto& t) { return to_lazy(t); });
    }
    const at::Tensor actual = run().cpu();
    EXPECT_EQ(actual.dtype(), expected.dtype());
    EXPECT_TRUE(at::allclose(actual.to(at::kFloat), expected.to(at::kFloat), 1e-2, 1e-2)) << "of bfloat16";
  }
}

} // namespace
} // namespace lazyplug
