// Batch norms (kernels/batch_norm.h). Compiled within the namespace of targets with AVX2 or AVX-512.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/batch_norm.h"
#include "kernels/matrix_product.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// A number for each of some channels, as many as a vector of floats has lanes.
struct ChannelSums {
  Doubles low{};
  Doubles high{};

  void add(Floats x) {
    HalfFloats halves[2];
    std::memcpy(halves, &x, sizeof(x));
    low = low + __builtin_convertvector(halves[0], Doubles);
    high = high + __builtin_convertvector(halves[1], Doubles);
  }
  double of(int64_t channel) const {
    constexpr int64_t kHalf = kNumLanes<Doubles>;
    return channel < kHalf ? low[channel] : high[channel - kHalf];
  }
};

// Calls visit(elements) for all places of the images in order, with one element for each of the channels.
template <typename Visit>
[[gnu::always_inline]] inline void
visit_channels(const BatchNorm& norm, int64_t first_channel, int64_t num_channels, const Visit& visit) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  for (int64_t image = 0; image < norm.num_images; ++image) {
    const float* from = norm.images + (image * norm.num_channels + first_channel) * norm.plane;
    for (int64_t place = 0; place < norm.plane; place += kLanes) {
      const int64_t n = std::min(norm.plane - place, kLanes);
      Floats rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = i < num_channels ? load_part<Floats>(from + i * norm.plane + place, n) : Floats{};
      }
      transpose(rows);
      for (int i = 0; i < n; ++i) {
        visit(rows[i]);
      }
    }
  }
}

// The mean, and what follows from the variance, of some channels, as ChannelSums has. What is rounded where, is
// PyTorch's choice.
inline void find_moments(const BatchNorm& norm, int64_t first_channel, int64_t end_channel) {
  const int64_t num_channels = end_channel - first_channel;
  const int64_t count = norm.num_images * norm.plane;
  ChannelSums sums;
  visit_channels(norm, first_channel, num_channels, [&](Floats x) { sums.add(x); });
  Floats means{};
  for (int64_t i = 0; i < num_channels; ++i) {
    means[i] = static_cast<float>(sums.of(i) / static_cast<double>(count));
  }
  ChannelSums squares;
  visit_channels(norm, first_channel, num_channels, [&](Floats x) { squares.add((x - means) * (x - means)); });
  for (int64_t i = 0; i < num_channels; ++i) {
    const int64_t channel = first_channel + i;
    const auto sum_of_squares = static_cast<float>(squares.of(i));
    const float variance = sum_of_squares / static_cast<float>(count);
    norm.mean[channel] = means[i];
    norm.rstd[channel] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance) + norm.epsilon));
    const float rest = 1 - norm.momentum;
    if (norm.running_mean) {
      norm.running_mean[channel] = norm.momentum * means[i] + rest * norm.running_mean[channel];
    }
    if (norm.running_var) {
      const double unbiased = sum_of_squares / static_cast<float>(count - 1);
      const float before = rest * norm.running_var[channel];
      norm.running_var[channel] = static_cast<float>(static_cast<double>(norm.momentum) * unbiased + before);
    }
  }
}

// Some planes, counted through the images.
inline void normalize_planes(const BatchNorm& norm, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  for (int64_t plane = begin; plane < end; ++plane) {
    const int64_t channel = plane % norm.num_channels;
    const float slope = norm.rstd[channel] * (norm.weight ? norm.weight[channel] : 1);
    const float shift = std::fma(-norm.mean[channel], slope, norm.bias ? norm.bias[channel] : 0);
    const float* from = norm.images + plane * norm.plane;
    float* to = norm.result + plane * norm.plane;
    for (int64_t i = 0; i < norm.plane; i += kLanes) {
      const int64_t n = std::min(norm.plane - i, kLanes);
      store_part(multiply_add(load_part<Floats>(from + i, n), slope, broadcast<Floats>(shift)), to + i, n);
    }
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
