#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include "kernels/pointwise.h"
#include "kernels/tile_loops.h"
#include "test/cpp/kernels/functions.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

// The instructions that make a layer norm; its results: the mean, 1 / the deviation, and what is normalized.
std::vector<at::Tensor> layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto program = parse(
      "f32 memory 6 slots 6 numbers 1 3 = row_center 0 ; 4 = row_rstd 0 3 0 ; 5 = normalize 0 3 4 ; 5 = mul_add 5 1 2 "
      ";");
  at::Tensor mean = at::empty({x.size(0), 1});
  std::vector<at::Tensor> results{mean, at::empty_like(mean), at::empty_like(x)};
  std::vector<Memory> memory;
  for (const auto& tensors : {std::vector<at::Tensor>{x, weight, bias}, results}) {
    for (const at::Tensor& tensor : tensors) {
      memory.push_back({tensor.data_ptr(), at::kFloat});
    }
  }
  const std::vector<PointwiseSpace::Input> places{{0, {x.size(1), 1}}, {0, {0, 1}}, {0, {0, 1}}};
  const double epsilon = 1e-5;
  run(*program, PointwiseSpace(x.sizes(), x.strides(), places), memory, &epsilon);
  return results;
}

TEST(LayerNorm, IsNoLessExactThanEagers) {
  at::manual_seed(3);
  for (const int64_t n : {2, 15, 64, 100, 768, 2048}) {
    for (const double offset : {0, 5, 1000}) {
      const at::Tensor x = at::randn({50, n}).add(offset);
      const at::Tensor weight = at::randn({n});
      const at::Tensor bias = at::randn({n});
      const auto ours = layer_norm(x, weight, bias);
      const auto eager = at::native_layer_norm(x, {n}, weight, bias, 1e-5);
      const auto exact =
          at::native_layer_norm(x.to(at::kDouble), {n}, weight.to(at::kDouble), bias.to(at::kDouble), 1e-5);
      const auto expect_good = [&](const at::Tensor& actual, const at::Tensor& other, const at::Tensor& right) {
        const auto error = [&](const at::Tensor& a) { return (a - right).abs().max().item<double>(); };
        const double ulp = 0x1p-24 * std::max(1.0, right.abs().max().item<double>());
        EXPECT_LE(error(actual), std::max(2 * error(other), 2 * ulp)) << n << " " << offset;
      };
      expect_good(ours[0], std::get<1>(eager), std::get<1>(exact));
      expect_good(ours[1], std::get<2>(eager), std::get<2>(exact));
      expect_good(ours[2], std::get<0>(eager), std::get<0>(exact));
    }
  }
}

TEST(LayerNorm, OfUnusualNumbersIsEagers) {
  for (const double unusual : {double(kInfinity), -double(kInfinity), double(NAN), 3e38, 1e-42}) {
    const at::Tensor x = at::randn({3, 70});
    x[1][33] = unusual;
    const at::Tensor one = at::ones({70});
    const auto ours = layer_norm(x, one, one);
    const auto eager = at::native_layer_norm(x, {70}, one, one, 1e-5);
    EXPECT_TRUE(at::allclose(ours[2], std::get<0>(eager), 1e-5, 1e-5, true)) << unusual;
  }
  const auto same = layer_norm(at::full({2, 70}, 3.25F), at::ones({70}), at::zeros({70}));
  EXPECT_TRUE(same[2].eq(0).all().item<bool>());
}

TEST(LayerNorm, MayBeWrittenOverItsInput) {
  const at::Tensor x = at::randn({37, 100});
  const at::Tensor mean = at::empty({37, 1});
  const at::Tensor expected = x.clone();
  const auto program =
      parse("f32 memory 2 slots 4 numbers 1 2 = row_center 0 ; 3 = row_rstd 0 2 0 ; 1 = normalize 0 2 3 ;");
  const PointwiseSpace space(x.sizes(), x.strides(), std::vector<PointwiseSpace::Input>{{0, {100, 1}}});
  const double epsilon = 1e-5;
  run(*program, space, std::vector<Memory>{{x.data_ptr(), at::kFloat}, {expected.data_ptr(), at::kFloat}}, &epsilon);
  run(*program, space, std::vector<Memory>{{x.data_ptr(), at::kFloat}, {x.data_ptr(), at::kFloat}}, &epsilon);
  EXPECT_TRUE(same_bits(x, expected));
}

// A row's slot may be that of the elements it is made of, and theirs that of a row.
TEST(LayerNorm, SlotsMayBeUsedAgain) {
  const at::Tensor x = at::randn({40, 64});
  const auto ours = layer_norm(x, at::ones({64}), at::zeros({64}));
  const auto program = parse(
      "f32 memory 2 slots 5 numbers 1 2 = copy 0 ; 2 = row_center 2 ; 3 = row_rstd 0 2 0 ; 3 = normalize 0 2 3 ; 1 = "
      "copy 3 ;");
  const auto spread = parse("f32 memory 2 slots 4 numbers 1 2 = row_center 0 ; 2 = spread 2 ; 1 = copy 2 ;");
  const at::Tensor out = at::empty_like(x);
  const PointwiseSpace space(x.sizes(), x.strides(), std::vector<PointwiseSpace::Input>{{0, {64, 1}}});
  const double epsilon = 1e-5;
  const std::vector<Memory> memory{{x.data_ptr(), at::kFloat}, {out.data_ptr(), at::kFloat}};
  run(*program, space, memory, &epsilon);
  EXPECT_TRUE(at::equal(out, ours[2]));
  run(*spread, space, memory, &epsilon);
  EXPECT_TRUE(at::equal(out, ours[0].expand_as(out)));
}

TEST(Softmax, OfUnusualNumbersIsEagers) {
  for (const int64_t n : {3, 16, 40, 100}) {
    for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
      for (const float unusual : {kInfinity, -kInfinity, NAN, 3e38F, -3e38F, 1e-42F}) {
        for (const float others : {0.0F, 1.5F, -kInfinity, -1e-41F, -3e38F}) {
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

at::Tensor reduce(Opcode opcode, const at::Tensor& x, double number = 0) {
  const Program program{x.scalar_type(), 2, 2, 1, {{opcode, 1, {0}}}};
  const at::Tensor out = at::empty({x.size(0)}, x.options());
  const PointwiseSpace space(x.sizes(), x.strides(), std::vector<PointwiseSpace::Input>{{0, {x.size(1), 1}}});
  run(program, space, std::vector<Memory>{{x.data_ptr(), x.scalar_type()}, {out.data_ptr(), x.scalar_type()}}, &number);
  return out;
}

at::Tensor logsumexp(const at::Tensor& x) {
  return reduce(Opcode::kLogSumExp, x);
}

// PyTorch computes in float64, too, so that most results have its bits.
TEST(Variances, AreRoundedOnceAndTheSameWhereverARowStands) {
  at::manual_seed(3);
  for (const int64_t n : kLengths) {
    for (const double factor : {1.0, 1e-25, 1e25}) {
      for (const double offset : {0.0, 300.0}) {
        const at::Tensor x = at::randn({37, n}).add(offset).mul(factor);
        for (const int64_t correction : {0, 1}) {
          const double number = static_cast<double>(correction);
          const at::Tensor root = reduce(Opcode::kRowStd, x, number);
          const at::Tensor exact = at::std(x.to(at::kDouble), {1}, correction);
          EXPECT_TRUE(at::allclose(root.to(at::kDouble), exact, 1.2e-7, 0, true))
              << n << " " << factor << " " << offset;
          EXPECT_TRUE(at::allclose(root, at::std(x, {1}, correction), 1.2e-7, 0, true));
          EXPECT_TRUE(at::allclose(reduce(Opcode::kRowVar, x, number), at::var(x, {1}, correction), 1.2e-7, 0, true));
          EXPECT_TRUE(same_bits(reduce(Opcode::kRowStd, x.narrow(0, 20, 1), number), root.narrow(0, 20, 1))) << n;
        }
      }
    }
  }
}

TEST(Variances, OfUnusualNumbersAreEagers) {
  for (const int64_t n : {2, 3, 31, 32, 33, 100}) {
    for (const float unusual : {kInfinity, -kInfinity, NAN, 3e38F, 1e-42F, -0.0F}) {
      for (const float others : {0.0F, 1.5F, kInfinity, -3e38F}) {
        const at::Tensor x = at::full({2, n}, others);
        x[1][n / 2] = unusual;
        EXPECT_TRUE(at::allclose(reduce(Opcode::kRowVar, x, 1), at::var(x, {1}), 1.2e-7, 0, true)) << n << others;
        EXPECT_TRUE(at::allclose(reduce(Opcode::kRowStd, x, 0), at::std(x, {1}, 0), 1.2e-7, 0, true)) << n << others;
      }
    }
  }
}

TEST(LogSumExp, IsNearlyExactAndTheSameWhereverARowStands) {
  at::manual_seed(3);
  for (const int64_t n : kLengths) {
    for (const double factor : {0.1, 3.0, 30.0}) {
      const at::Tensor x = at::randn({37, n}).mul(factor);
      const at::Tensor exact = at::logsumexp(x.to(at::kDouble), {1});
      const at::Tensor ours = logsumexp(x);
      const auto error = [&](const at::Tensor& a) {
        return (a.to(at::kDouble) - exact).abs().div(exact.abs().clamp_min(1)).max().item<double>();
      };
      EXPECT_LE(error(ours), std::max(2e-7, 1.5 * error(at::logsumexp(x, {1})))) << n << " " << factor;
      EXPECT_TRUE(same_bits(logsumexp(x.narrow(0, 20, 1)), ours.narrow(0, 20, 1))) << n;
      if (n <= 1024) {
        EXPECT_TRUE(at::allclose(logsumexp(x.to(at::kDouble)), exact, 1e-12, 1e-12)) << n;
      }
    }
  }
}

TEST(LogSumExp, OfUnusualNumbersIsEagers) {
  for (const int64_t n : {2, 3, 16, 40, 100}) {
    for (const float unusual : {kInfinity, -kInfinity, NAN, 3e38F, -3e38F, 1e-42F}) {
      for (const float others : {0.0F, 1.5F, -kInfinity, kInfinity, -1e-41F, -3e38F, 3e38F}) {
        const at::Tensor x = at::full({2, n}, others);
        x[1][n / 2] = unusual;
        EXPECT_TRUE(at::allclose(logsumexp(x), at::logsumexp(x, {1}), 1e-6, 1e-7, true))
            << n << " " << unusual << " " << others;
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
