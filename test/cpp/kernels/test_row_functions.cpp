#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include "kernels/pointwise.h"
#include "kernels/tile_loops.h"
#include "test/cpp/kernels/functions.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {

#ifdef __x86_64__
namespace avx2 {
template <typename T>
const Loops<T>& loops();
}
namespace avx512 {
template <typename T>
const Loops<T>& loops();
}
#endif

namespace {

// One instruction on whole rows.
void run_rows(Opcode opcode, const std::vector<at::Tensor>& inputs, const at::Tensor& out) {
  const auto num_inputs = static_cast<uint8_t>(inputs.size());
  const auto num_slots = static_cast<uint8_t>(num_inputs + 1);
  const Program program{out.scalar_type(), num_slots, num_slots, 0, {{opcode, num_inputs, {0, 1, 2}}}};
  std::vector<Memory> memory;
  std::vector<PointwiseSpace::Input> places;
  for (const at::Tensor& input : inputs) {
    memory.push_back({input.data_ptr(), input.scalar_type()});
    places.push_back({0, c10::DimVector(input.strides())});
  }
  memory.push_back({out.data_ptr(), out.scalar_type()});
  run(program, PointwiseSpace(out.sizes(), out.strides(), places), memory, nullptr);
}

at::Tensor run_rows(Opcode opcode, const std::vector<at::Tensor>& inputs) {
  const at::Tensor result = at::empty_like(inputs[0]);
  run_rows(opcode, inputs, result);
  return result;
}

// A function of rows: in float64 what it is to be, and how far it may be from that, relative to the largest of the
// exact row.
struct RowFunction {
  Opcode opcode;
  at::Tensor (*exact)(const std::vector<at::Tensor>& inputs);
  double max_error;
};

using Inputs = const std::vector<at::Tensor>&;
const std::vector<RowFunction> kFunctions{
    {Opcode::kSoftmax, [](Inputs x) { return at::softmax(x[0], -1); }, 3e-7},
    {Opcode::kLogSoftmax, [](Inputs x) { return at::log_softmax(x[0], -1); }, 2e-7},
    {Opcode::kSoftmaxBackward,
     [](Inputs x) { return at::_softmax_backward_data(x[0], x[1], -1, x[0].scalar_type()); },
     4e-7},
    {Opcode::kLogSoftmaxBackward,
     [](Inputs x) { return at::_log_softmax_backward_data(x[0], x[1], -1, x[0].scalar_type()); },
     1e-6},
};

class RowFunctions : public testing::TestWithParam<RowFunction> {
 protected:
  void SetUp() override {
    at::manual_seed(1);
  }
  Opcode opcode() const {
    return GetParam().opcode;
  }
  // A gradient's second input is a result.
  std::vector<at::Tensor> inputs(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) const {
    const at::Tensor x = at::randn(sizes, dtype).mul(3);
    if (traits(opcode()).num_inputs == 1) {
      return {x};
    }
    return {at::randn(sizes, dtype), opcode() == Opcode::kSoftmaxBackward ? x.softmax(-1) : x.log_softmax(-1)};
  }
};

const std::vector<int64_t> kLengths{1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 500, 513, 4096};

TEST_P(RowFunctions, AreNearlyExactForRowsOfAnyLength) {
  for (const int64_t n : kLengths) {
    const auto single = inputs({40, n});
    std::vector<at::Tensor> doubles;
    for (const at::Tensor& input : single) {
      doubles.push_back(input.to(at::kDouble));
    }
    const at::Tensor exact = GetParam().exact(doubles);
    const at::Tensor scale = at::maximum(exact.abs(), doubles[0].abs()).amax(-1, true);
    const at::Tensor error = (run_rows(opcode(), single).to(at::kDouble) - exact).abs().div(scale);
    EXPECT_LE(error.max().item<double>(), GetParam().max_error * std::max(1.0, std::sqrt(n / 64.0))) << n;
    if (n <= 1024) { // more do not fit into a tile
      EXPECT_TRUE(at::allclose(run_rows(opcode(), doubles), exact, 1e-12, 1e-12)) << n;
    }
  }
}

TEST_P(RowFunctions, HaveTheSameBitsWhereverARowStands) {
  for (const int64_t n : kLengths) {
    const auto all = inputs({37, n});
    const at::Tensor expected = run_rows(opcode(), all);
    for (const int64_t row : {0, 1, 36}) {
      std::vector<at::Tensor> one;
      for (const at::Tensor& input : all) {
        one.push_back(input.narrow(0, row, 1).clone());
      }
      EXPECT_TRUE(same_bits(run_rows(opcode(), one), expected.narrow(0, row, 1))) << n << " " << row;
    }
  }
}

TEST_P(RowFunctions, HaveTheSameBitsOnAnyNumberOfThreads) {
  const auto all = inputs({700, 129});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor expected = run_rows(opcode(), all);
  at::set_num_threads(2);
  EXPECT_TRUE(same_bits(run_rows(opcode(), all), expected));
  at::set_num_threads(before);
}

TEST_P(RowFunctions, WriteOverAnyInput) {
  for (const int64_t n : kLengths) {
    for (size_t written = 0; written < traits(opcode()).num_inputs; ++written) {
      const auto all = inputs({5, n});
      const at::Tensor expected = run_rows(opcode(), all);
      run_rows(opcode(), all, all[written]);
      EXPECT_TRUE(same_bits(all[written], expected)) << n << " " << written;
    }
  }
}

TEST_P(RowFunctions, LeaveWhatIsBeyondARowAlone) {
  const auto all = inputs({3, 21});
  const at::Tensor memory = at::full({70}, 7.0F);
  run_rows(opcode(), all, memory.narrow(0, 0, 63).view({3, 21}));
  EXPECT_TRUE(memory.narrow(0, 63, 7).eq(7).all().item<bool>());
}

#ifdef __x86_64__
TEST_P(RowFunctions, HaveTheSameBitsForEachTargetWithMultiplyAdd) {
  if (at::get_cpu_capability() != "AVX512") {
    GTEST_SKIP() << "has no vectors of two lengths";
  }
  const auto index = static_cast<size_t>(opcode());
  for (const int64_t n : kLengths) {
    const auto all = inputs({3, n});
    const auto* a = all[0].const_data_ptr<float>();
    const auto* b = all.back().const_data_ptr<float>();
    const at::Tensor narrow = at::empty({3, n});
    const at::Tensor wide = at::empty({3, n});
    avx2::loops<float>().of_rows[index](3, n, narrow.mutable_data_ptr<float>(), a, b, a, 0, 0);
    avx512::loops<float>().of_rows[index](3, n, wide.mutable_data_ptr<float>(), a, b, a, 0, 0);
    EXPECT_TRUE(same_bits(narrow, wide)) << n;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Opcodes, RowFunctions, testing::ValuesIn(kFunctions), [](const auto& info) {
  return traits(info.param.opcode).name;
});

TEST(Softmax, OfUnusualNumbersIsEagers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int64_t n : {3, 16, 40, 100}) {
    for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
      for (const float unusual : {kInf, -kInf, NAN, 3e38F, -3e38F, 1e-42F}) {
        for (const float others : {0.0F, 1.5F, -kInf, -1e-41F, -3e38F}) {
          const at::Tensor x = at::full({2, n}, others);
          x[1][place] = unusual;
          EXPECT_TRUE(at::allclose(run_rows(Opcode::kSoftmax, {x}), x.softmax(-1), 1e-6, 1e-7, true))
              << n << " " << place << " " << unusual << " " << others;
          EXPECT_TRUE(at::allclose(run_rows(Opcode::kLogSoftmax, {x}), x.log_softmax(-1), 1e-6, 1e-6, true))
              << n << " " << place << " " << unusual << " " << others;
        }
      }
    }
  }
}

TEST(Softmax, IsNoLessExactThanEagers) {
  at::manual_seed(3);
  for (const int64_t n : {16, 100, 1024}) {
    const at::Tensor x = at::randn({300, n});
    const at::Tensor exact = x.to(at::kDouble).softmax(-1);
    const auto error = [&](const at::Tensor& result) {
      double worst = 0;
      for (int64_t i = 0; i < result.numel(); ++i) {
        worst = std::max(worst, ulps(result.const_data_ptr<float>()[i], exact.const_data_ptr<double>()[i]));
      }
      return worst;
    };
    EXPECT_LE(error(run_rows(Opcode::kSoftmax, {x})), std::max(2.0, 1.1 * error(x.softmax(-1)))) << n;
  }
}

} // namespace
} // namespace lazyplug::kernels
