// Gradients of filters (kernels/filter_gradient.h), as products: a tile of the result is of some filters' elements, and
// of output channels that fill one to four vectors. Compiled within the namespace of targets with AVX2 or AVX-512.
#pragma once

#include <algorithm>

#include "kernels/convolution_loops.h"
#include "kernels/filter_gradient_plan.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// Of one image: channels side by side for each window, zeros beyond the last one.
inline void transpose_gradient(const FilterGradientPlan& plan, int64_t image, float* transposed, FiniteCheck& check) {
  const Convolution& convolution = plan.gradient.convolution;
  const int64_t num_windows = convolution.out_plane();
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const float* from = plan.gradient.gradient + image * convolution.out_channels * num_windows;
  for (int64_t channel = 0; channel < plan.padded_channels; channel += kLanes) {
    for (int64_t window = 0; window < num_windows; window += kLanes) {
      const int64_t n = std::min(num_windows - window, kLanes);
      Floats rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = channel + i < convolution.out_channels
                      ? load_part<Floats>(from + (channel + i) * num_windows + window, n)
                      : Floats{};
        check.see(rows[i]);
      }
      transpose(rows);
      for (int i = 0; i < n; ++i) {
        store(rows[i], transposed + (window + i) * plan.padded_channels + channel);
      }
    }
  }
}

// Some images, prepared, and some elements of filters.
struct FilterTile {
  const FilterGradientPlan& plan;
  int64_t num_images;
  const float* padded;
  const float* transposed; // the gradients
  int64_t first;           // element
  int64_t first_channel;
  float* sums; // by elements, then by channels
};

template <int kRows, int kVectors>
void run_filter_tile(const FilterTile& tile) {
  const ConvolutionPlan& padding = tile.plan.padding;
  const Convolution& convolution = padding.convolution;
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const float* elements[kRows];
  Floats sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    elements[i] = tile.padded + tile.plan.place_of(tile.first + i);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = load<Floats>(tile.sums + (i * kVectors + j) * kLanes);
    }
  }
  const float* given = tile.transposed + tile.first_channel;
  for (int64_t image = 0; image < tile.num_images; ++image) {
    int64_t place = image * convolution.in_channels * padding.padded_plane;
    for (int64_t row = 0; row < convolution.rows.out_size; ++row) {
      for (int64_t column = 0; column < convolution.columns.out_size; ++column) {
        Floats of_channels[kVectors];
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          of_channels[j] = load<Floats>(given + j * kLanes);
        }
#pragma GCC unroll 12
        for (int i = 0; i < kRows; ++i) {
          const auto x = broadcast<Floats>(elements[i][place + column]);
#pragma GCC unroll 4
          for (int j = 0; j < kVectors; ++j) {
            sums[i][j] = multiply_add(x, of_channels[j], sums[i][j]);
          }
        }
        given += tile.plan.padded_channels;
      }
      place += convolution.rows.stride * padding.padded_row;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      store(sums[i][j], tile.sums + (i * kVectors + j) * kLanes);
    }
  }
}

template <int kVectors, int... kRows>
auto find_filter_tile(int64_t rows, std::integer_sequence<int, kRows...> /*rows*/) {
  static constexpr void (*kTiles[])(const FilterTile&) = {run_filter_tile<kRows + 1, kVectors>...};
  return kTiles[rows - 1];
}

// Of so many vectors and elements, as FilterGradientPlan makes them.
inline auto find_filter_tile_of(int64_t vectors, int64_t rows) {
  constexpr auto kAll = std::make_integer_sequence<int, 12>();
  constexpr auto kHalf = std::make_integer_sequence<int, 6>();
#ifdef __AVX512F__
  return vectors == 1   ? find_filter_tile<1>(rows, kAll)
         : vectors == 2 ? find_filter_tile<2>(rows, kAll)
                        : find_filter_tile<4>(rows, kHalf);
#else
  return vectors == 1 ? find_filter_tile<1>(rows, kAll) : find_filter_tile<2>(rows, kHalf);
#endif
}

// Images, and their gradients, as tiles read them.
inline void prepare(
    const FilterGradientPlan& plan,
    int64_t first_image,
    int64_t images,
    float* padded,
    float* transposed,
    FiniteCheck& check) {
  const Convolution& convolution = plan.padding.convolution;
  pad(plan.padding, first_image, images, 0, padded);
  for (int64_t image = 0; image < images; ++image) {
    transpose_gradient(
        plan,
        first_image + image,
        transposed + image * convolution.out_plane() * plan.padded_channels,
        check);
  }
}

inline void sum_up_bias(const FilterGradientPlan& plan, int64_t images, const float* transposed, float* sums) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const int64_t num_windows = images * plan.padding.convolution.out_plane();
  for (int64_t channel = 0; channel < plan.padded_channels; channel += kLanes) {
    Floats sum = load<Floats>(sums + channel);
    for (int64_t window = 0; window < num_windows; ++window) {
      sum = sum + load<Floats>(transposed + window * plan.padded_channels + channel);
    }
    store(sum, sums + channel);
  }
}

// Writes the sums of a tile where they belong, or adds them to what is there.
inline void deliver(const FilterGradientPlan& plan, int64_t tile, const float* sums, float* of_filters, bool adds) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const int64_t first = plan.first_element(tile);
  const int64_t rows = plan.num_elements(tile);
  for (int64_t j = 0; j < plan.vectors_of_tile; ++j) {
    const int64_t channel = plan.first_channel(tile) + j * kLanes;
    for (int64_t begin = 0; begin < rows; begin += kLanes) {
      const int64_t n = std::min(rows - begin, kLanes);
      Floats of_elements[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        of_elements[i] = i < n ? load<Floats>(sums + ((begin + i) * plan.vectors_of_tile + j) * kLanes) : Floats{};
      }
      transpose(of_elements);
      for (int64_t i = 0; i < kLanes && channel + i < plan.padding.convolution.out_channels; ++i) {
        float* to = of_filters + (channel + i) * plan.filter_elements() + first + begin;
        store_part(adds ? load_part<Floats>(to, n) + of_elements[i] : of_elements[i], to, n);
      }
    }
  }
}

inline void add_all(int64_t n, const float* from, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] += from[i];
  }
}

inline bool sum_up_filters(const FilterGradientPlan& plan, const FilterGradientBlock& block) {
  const FilterGradient& gradient = plan.gradient;
  float* padded = block.memory;
  float* transposed = padded + plan.padded_floats();
  float* of_bias = transposed + plan.transposed_floats();
  float* sums = of_bias + plan.padded_channels;
  const int64_t num_sums = (block.end_tile - block.first_tile) * plan.sums_of_tile();
  FiniteCheck check;
  std::fill_n(padded, plan.padded_floats(), 0.0F);
  for (int64_t part = block.first_part; part < block.end_part; ++part) {
    std::fill_n(of_bias, plan.padded_channels + num_sums, 0.0F);
    const int64_t end = plan.part_begin(part + 1);
    for (int64_t image = plan.part_begin(part); image < end; image += plan.images_at_once) {
      const int64_t images = std::min(plan.images_at_once, end - image);
      prepare(plan, image, images, padded, transposed, check);
      for (int64_t tile = block.first_tile; tile < block.end_tile; ++tile) {
        const int64_t rows = plan.num_elements(tile);
        const auto run = find_filter_tile_of(plan.vectors_of_tile, rows);
        run(
            {plan,
             images,
             padded,
             transposed,
             plan.first_element(tile),
             plan.first_channel(tile),
             sums + (tile - block.first_tile) * plan.sums_of_tile()});
      }
      if (gradient.of_bias && block.first_tile == 0) {
        sum_up_bias(plan, images, transposed, of_bias);
      }
    }
    const bool adds = part != block.first_part;
    for (int64_t tile = block.first_tile; tile < block.end_tile; ++tile) {
      deliver(plan, tile, sums + (tile - block.first_tile) * plan.sums_of_tile(), block.of_filters, adds);
    }
    if (gradient.of_bias && block.first_tile == 0) {
      const int64_t channels = gradient.convolution.out_channels;
      adds ? add_all(channels, of_bias, block.of_bias) : void(std::copy_n(of_bias, channels, block.of_bias));
    }
  }
  return check.are_finite();
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
