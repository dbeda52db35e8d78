// Norms of rows. Compiled within the namespace of each target.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// The root of the sum of squares of each row. As PyTorch's kernel adds up, which has no AVX-512: eight sums, of every
// eighth element each, then one after the other, then the rest. Of that, the compiler has made vectors of four
// products, which are rounded, and what is left is multiplied and added at once.
inline void norm_rows(int64_t rows, int64_t n, const float* from, float* out) {
  using Sums [[gnu::vector_size(32)]] = float;
  constexpr int64_t kNumSums = sizeof(Sums) / sizeof(float);
  for (int64_t row = 0; row < rows; ++row, from += n) {
    Sums sums{};
    int64_t i = 0;
    for (; i + kNumSums <= n; i += kNumSums) {
      Sums elements;
      std::memcpy(&elements, from + i, sizeof(elements));
      sums += elements * elements;
    }
    float sum = sums[0];
    for (int64_t lane = 1; lane < kNumSums; ++lane) {
      sum += sums[lane];
    }
    const int64_t end_of_four = n - i < 4 ? i : i + 4;
    for (; i < end_of_four; ++i) {
      sum += from[i] * from[i];
    }
    for (; i < n; ++i) {
      sum = std::fma(from[i], from[i], sum);
    }
    out[row] = std::sqrt(sum);
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
