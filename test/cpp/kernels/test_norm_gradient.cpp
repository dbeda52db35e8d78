#include "kernels/norm_gradient.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include "kernels/tile_loops.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

struct Norm {
  Norm(int64_t num_rows, int64_t n, double offset = 0)
      : gradient(at::randn({num_rows, n})), x(at::randn({num_rows, n}).add(offset)), weight(at::randn({n})) {
    find_norms();
  }
  void find_norms() {
    const int64_t n = x.size(1);
    const auto norm = at::native_layer_norm(x.to(at::kDouble), {n}, {}, {}, 1e-5);
    mean = std::get<1>(norm).to(at::kFloat);
    rstd = std::get<2>(norm).to(at::kFloat);
  }
  std::vector<at::Tensor> eager(at::ScalarType dtype) const {
    const auto [a, b, c] = at::native_layer_norm_backward(
        gradient.to(dtype),
        x.to(dtype),
        {x.size(1)},
        mean.to(dtype),
        rstd.to(dtype),
        weight.to(dtype),
        weight.to(dtype),
        {true, true, true});
    return {a, b, c};
  }
  NormGradient call(const std::vector<at::Tensor>& results) const {
    const auto data = [&](size_t i) { return results[i].defined() ? results[i].mutable_data_ptr<float>() : nullptr; };
    return {
        x.size(0),
        x.size(1),
        gradient.const_data_ptr<float>(),
        x.const_data_ptr<float>(),
        mean.const_data_ptr<float>(),
        rstd.const_data_ptr<float>(),
        weight.const_data_ptr<float>(),
        data(0),
        data(1),
        data(2)};
  }
  std::vector<at::Tensor> ours() const {
    std::vector<at::Tensor> results{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
    run(call(results));
    return results;
  }

  at::Tensor gradient, x, weight, mean, rstd;
};

TEST(NormGradient, IsNoLessExactThanEagers) {
  at::manual_seed(3);
  for (const int64_t num_rows : {1, 3, 130, 700}) {
    for (const int64_t n : {1, 15, 16, 33, 64, 100, 768, 2048}) {
      for (const double offset : {0, 10}) {
        const Norm norm(num_rows, n, offset);
        const auto exact = norm.eager(at::kDouble);
        const auto eager = norm.eager(at::kFloat);
        const auto ours = norm.ours();
        for (size_t i = 0; i < 3; ++i) {
          const auto error = [&](const at::Tensor& a) { return (a - exact[i]).abs().max().item<double>(); };
          const double ulp = 0x1p-24 * std::max(1.0, exact[i].abs().max().item<double>());
          EXPECT_LE(error(ours[i]), std::max(2 * error(eager[i]), 4 * ulp))
              << i << " of " << num_rows << "x" << n << " " << offset;
        }
      }
    }
  }
}

TEST(NormGradient, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const Norm norm(900, 129);
  at::set_num_threads(1);
  const auto expected = norm.ours();
  at::set_num_threads(3);
  const auto actual = norm.ours();
  at::set_num_threads(before);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(actual[i], expected[i])) << i;
  }
}

TEST(NormGradient, LeavesOutWhatNobodyWants) {
  const Norm norm(70, 50);
  const auto expected = norm.ours();
  for (size_t wanted = 0; wanted < 3; ++wanted) {
    std::vector<at::Tensor> results(3);
    results[wanted] = at::empty_like(expected[wanted]);
    run(norm.call(results));
    EXPECT_TRUE(same_bits(results[wanted], expected[wanted])) << wanted;
  }
}

// Of infinities, one formula makes NaN where another makes an infinity.
TEST(NormGradient, OfUnusualNumbersIsFiniteWhereEagersIs) {
  for (const float unusual : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
    Norm norm(5, 40);
    norm.gradient[2][7] = unusual;
    norm.x[3][39] = unusual;
    norm.find_norms();
    const auto eager = norm.eager(at::kFloat);
    const auto ours = norm.ours();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(ours[i].isfinite().equal(eager[i].isfinite())) << i << " " << unusual;
      EXPECT_TRUE(at::allclose(ours[i].nan_to_num(0, 0, 0), eager[i].nan_to_num(0, 0, 0), 1e-5, 1e-5));
    }
  }
}

#ifdef __x86_64__
TEST(NormGradient, HasTheSameBitsForEachTargetWithMultiplyAdd) {
  if (at::get_cpu_capability() != "AVX512") {
    GTEST_SKIP() << "has no vectors of two lengths";
  }
  for (const int64_t n : {1, 15, 16, 17, 40, 129}) {
    const Norm norm(7, n);
    const auto compute = [&](const Loops<float>& loops) {
      std::vector<at::Tensor> results{at::empty_like(norm.x), at::zeros({n}), at::zeros({n})};
      loops.norm_gradient(
          norm.call(results),
          0,
          7,
          results[1].mutable_data_ptr<float>(),
          results[2].mutable_data_ptr<float>());
      return results;
    };
    const auto narrow = compute(avx2::loops<float>());
    const auto wide = compute(avx512::loops<float>());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(narrow[i], wide[i])) << i << " " << n;
    }
  }
}
#endif

} // namespace
} // namespace lazyplug::kernels
