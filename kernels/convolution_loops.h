// Convolutions as products (kernels/matrix_product.h): a tile of the result is of some output channels, and of windows
// that fill two vectors, whose elements are read where they are. Compiled within the namespace of targets with AVX2 or
// AVX-512.
#pragma once

#include <algorithm>

#include "kernels/convolution.h"
#include "kernels/convolution_plan.h"
#include "kernels/matrix_product.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

static_assert(ConvolutionPlan::tile_rows(kNumLanes<Floats>) == kTileRows && kTileVectors == 2);

// Notes infinities and NaN among vectors.
class FiniteCheck {
 public:
  void see(Floats x) {
    constexpr int32_t kExponent = 0x7F800000;
    not_finite_ |= (bits_of(x) & kExponent) == kExponent;
  }
  bool are_finite() const {
    return !has_any_bit(not_finite_);
  }

 private:
  Ints not_finite_{};
};

// Filters of some output channels, one tile's: for each place and input channel those of all, side by side. Lanes
// beyond the tile are zeros.
struct PackedFilters {
  const ConvolutionPlan& plan;
  int64_t rows;
  int64_t size; // of a filter
  int64_t channels;
  float* packed;
  FiniteCheck check;

  // `n` elements that follow each other for each row, from the place of a channel on.
  void pack(const float* from, int64_t row, int64_t n, int64_t channel, int64_t place) {
    Floats of_rows[kNumLanes<Floats>];
#pragma GCC unroll 16
    for (int i = 0; i < kNumLanes<Floats>; ++i) {
      of_rows[i] = i < rows ? load_part<Floats>(from + i * row, n) : Floats{};
      check.see(of_rows[i]);
    }
    transpose(of_rows);
    for (int i = 0; i < n; ++i) {
      store(of_rows[i], packed + plan.place_in_sum(place, channel, channels) * kNumLanes<Floats>);
      if (++place == size) {
        place = 0;
        ++channel;
      }
    }
  }
  // Of `count` elements of each row, from the first place of a channel on.
  void pack_all(const float* from, int64_t row, int64_t count, int64_t channel) {
    for (int64_t k = 0; k < count; k += kNumLanes<Floats>) {
      const int64_t n = std::min<int64_t>(count - k, kNumLanes<Floats>);
      pack(from + k, row, n, channel + k / size, k % size);
    }
  }
};

inline bool pack_filters(const Convolution& convolution, int64_t tile, int64_t first_channel, float* packed) {
  const ConvolutionPlan plan(convolution, kNumLanes<Floats>);
  const int64_t size = convolution.filter_size();
  const int64_t channels = plan.channels_from(first_channel);
  const int64_t first = plan.tile_begin(tile);
  PackedFilters filters{plan, plan.tile_begin(tile + 1) - first, size, channels, packed, {}};
  if (!convolution.is_gradient) { // channels follow each other
    const int64_t row = convolution.in_channels * size;
    filters.pack_all(convolution.filters + first * row + first_channel * size, row, channels * size, 0);
    return filters.check.are_finite();
  }
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* from = convolution.filters + ((first_channel + channel) * convolution.out_channels + first) * size;
    filters.pack_all(from, size, size, channel);
  }
  return filters.check.are_finite();
}

// Every second element of two vectors, from the first or the second on.
template <int kFirst, int... kIndices>
Floats pick_half(Floats low, Floats high, std::integer_sequence<int, kIndices...> /*indices*/) {
  return __builtin_shufflevector(low, high, (2 * kIndices + kFirst)...);
}

// n elements from `from`, of which every second one goes to the other part.
inline void split_row(int64_t n, const float* from, float* even, float* odd) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  constexpr auto kIndices = std::make_integer_sequence<int, kLanes>();
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    const Floats low = load_part<Floats>(from + i, std::min(n - i, kLanes));
    const Floats high = load_part<Floats>(from + i + kLanes, std::clamp<int64_t>(n - i - kLanes, 0, kLanes));
    store_part(pick_half<0>(low, high, kIndices), even + i / 2, std::min((n - i + 1) / 2, kLanes));
    store_part(pick_half<1>(low, high, kIndices), odd + i / 2, std::min((n - i) / 2, kLanes));
  }
}

// A row of an image, to a padded one. Such a row is split up by the strides of windows, so that what neighbouring
// windows read in one place lies side by side.
inline void pad_row(const ConvolutionPlan& plan, const float* from, float* to) {
  const Pool::Axis& columns = plan.convolution.columns;
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const auto place_of = [&](int64_t i) {
    const int64_t padded = i + columns.padding;
    return to + padded % columns.stride * plan.part_of_row + padded / columns.stride;
  };
  if (columns.stride == 1) {
    for (int64_t i = 0; i < columns.in_size; i += kLanes) {
      const int64_t n = std::min(columns.in_size - i, kLanes);
      store_part(load_part<Floats>(from + i, n), to + columns.padding + i, n);
    }
  } else if (columns.stride == 2) {
    split_row(columns.in_size, from, place_of(0), place_of(1));
  } else {
    for (int64_t i = 0; i < columns.in_size; ++i) {
      *place_of(i) = from[i];
    }
  }
}

// Some channels of some images with their padding, whose zeros are there already.
inline void
pad(const ConvolutionPlan& plan, int64_t first_image, int64_t images, int64_t first_channel, float* padded) {
  const Convolution& convolution = plan.convolution;
  const int64_t channels = plan.channels_from(first_channel);
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      const int64_t plane = (first_image + image) * convolution.in_channels + first_channel + channel;
      const float* from = convolution.images + plane * convolution.in_plane();
      float* to = padded + (image * plan.most_channels + channel) * plan.padded_plane +
                  convolution.rows.padding * plan.padded_row;
      for (int64_t row = 0; row < plan.rows_read; ++row) {
        pad_row(plan, from + row * convolution.columns.in_size, to + row * plan.padded_row);
      }
    }
  }
}

// Windows of one row, side by side in a vector, or in a half or a quarter of it.
struct Piece {
  int64_t from;  // of the first one, in the padded images
  float* result; // of the first output channel; of lane 0, if that were part of it
  Lanes lanes;   // none: there is no such piece
};

template <int kPieces>
struct Panel {
  Piece pieces[kTileVectors][kPieces];

  Panel() = default; // not initialised
  // From the `first` piece on, counted through rows, and these through the group's images.
  Panel(const ConvolutionPlan& plan, int64_t first_image, int64_t first, int64_t end) {
    constexpr int64_t kLanes = kNumLanes<Floats> / kPieces;
    const Convolution& convolution = plan.convolution;
    for (int64_t j = 0; j < kTileVectors * kPieces; ++j) {
      const int64_t row = std::min(first + j, end - 1) / plan.pieces_of_row;
      const int64_t in_row = std::min(first + j, end - 1) % plan.pieces_of_row * kLanes;
      const int64_t image = row / convolution.rows.out_size;
      const int64_t row_of_image = row % convolution.rows.out_size;
      const int64_t lane = j % kPieces * kLanes;
      const int64_t length = first + j < end ? std::min(convolution.columns.out_size - in_row, kLanes) : 0;
      const int64_t plane = (first_image + image) * convolution.out_channels;
      pieces[j / kPieces][j % kPieces] = {
          image * plan.most_channels * plan.padded_plane + row_of_image * convolution.rows.stride * plan.padded_row +
              in_row,
          convolution.result + plane * convolution.out_plane() + row_of_image * convolution.columns.out_size + in_row -
              lane,
          {static_cast<int8_t>(lane), static_cast<int8_t>(length)}};
    }
  }
};

// Where what is multiplied lies, in the order in which it is added up.
inline void find_places(const ConvolutionPlan& plan, int64_t channels, int32_t* places) {
  const int64_t size = plan.convolution.filter_size();
  for (int64_t element = 0; element < size; ++element) {
    const int64_t place = plan.place_of(plan.convolution.is_gradient ? size - 1 - element : element);
    for (int64_t channel = 0; channel < channels; ++channel) {
      places[plan.place_in_sum(element, channel, channels)] = static_cast<int32_t>(place + channel * plan.padded_plane);
    }
  }
}

template <int kPieces>
struct ConvolutionTile {
  const Panel<kPieces>& panel;
  const float* padded;
  const int32_t* places;
  int64_t inner;        // how many places
  const float* filters; // packed
  const float* bias;    // of these channels; null: 0
  int64_t first_channel;
  int64_t out_plane;
  bool is_first;   // of the channels
  bool is_running; // the sum begins with the bias, or what it has been so far
};

template <int kPieces>
[[gnu::always_inline]] inline Floats load_pieces(const float* const (&from)[kPieces], int64_t place) {
  if constexpr (kPieces == 1) {
    return load<Floats>(from[0] + place);
  }
#ifdef __AVX512F__
  else if constexpr (kPieces == 2) {
    const __m512 low = _mm512_castps256_ps512(_mm256_loadu_ps(from[0] + place));
    return _mm512_maskz_insertf32x8(0xFFFF, low, _mm256_loadu_ps(from[1] + place), 1);
  } else {
    __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(from[0] + place));
    all = _mm512_maskz_insertf32x4(0xFFFF, all, _mm_loadu_ps(from[1] + place), 1);
    all = _mm512_maskz_insertf32x4(0xFFFF, all, _mm_loadu_ps(from[2] + place), 2);
    return _mm512_maskz_insertf32x4(0xFFFF, all, _mm_loadu_ps(from[3] + place), 3);
  }
#else
  else if constexpr (kPieces == 2) {
    return _mm256_loadu2_m128(from[1] + place, from[0] + place);
  } else {
    const auto load_pair = [&](int piece) { return reinterpret_cast<const __m64*>(from[piece] + place); };
    const __m128 low = _mm_loadh_pi(_mm_loadl_pi(_mm_setzero_ps(), load_pair(0)), load_pair(1));
    const __m128 high = _mm_loadh_pi(_mm_loadl_pi(_mm_setzero_ps(), load_pair(2)), load_pair(3));
    return _mm256_set_m128(high, low);
  }
#endif
}

// What sums begin with.
template <int kRows, int kPieces>
[[gnu::always_inline]] inline TileSums<kRows> begin_sums(const ConvolutionTile<kPieces>& tile) {
  TileSums<kRows> sums{};
  if (!tile.is_running || (tile.is_first && !tile.bias)) {
    return sums;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kTileVectors; ++j) {
      if (tile.is_first) {
        sums.of[i][j] = broadcast<Floats>(tile.bias[i]);
        continue;
      }
      const int64_t row = (tile.first_channel + i) * tile.out_plane;
#pragma GCC unroll 4
      for (int piece = 0; piece < kPieces; ++piece) {
        const Piece& from = tile.panel.pieces[j][piece];
        const Floats before = load_lanes(from.result + row, from.lanes);
        sums.of[i][j] = from_bits<Floats>(bits_of(sums.of[i][j]) | bits_of(before)); // -0, too
      }
    }
  }
  return sums;
}

template <int kRows, int kPieces>
[[gnu::always_inline]] inline TileSums<kRows> multiply_windows(const ConvolutionTile<kPieces>& tile) {
  TileSums<kRows> sums = begin_sums<kRows>(tile);
  const float* from[kTileVectors][kPieces];
  for (int j = 0; j < kTileVectors; ++j) {
    for (int piece = 0; piece < kPieces; ++piece) {
      from[j][piece] = tile.padded + tile.panel.pieces[j][piece].from;
    }
  }
  const float* filters = tile.filters;
#pragma GCC unroll 2
  for (int64_t k = 0; k < tile.inner; ++k, filters += kNumLanes<Floats>) {
    Floats windows[kTileVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kTileVectors; ++j) {
      windows[j] = load_pieces(from[j], tile.places[k]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const auto x = broadcast<Floats>(filters[i]);
#pragma GCC unroll 2
      for (int j = 0; j < kTileVectors; ++j) {
        sums.of[i][j] = multiply_add(x, windows[j], sums.of[i][j]);
      }
    }
  }
  return sums;
}

template <int kRows, int kPieces>
[[gnu::always_inline]] inline void add_to_images(const TileSums<kRows>& sums, const ConvolutionTile<kPieces>& tile) {
#pragma GCC unroll 2
  for (int j = 0; j < kTileVectors; ++j) {
#pragma GCC unroll 4
    for (int piece = 0; piece < kPieces; ++piece) {
      float* to = tile.panel.pieces[j][piece].result + tile.first_channel * tile.out_plane;
      const Lanes lanes = tile.panel.pieces[j][piece].lanes;
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i, to += tile.out_plane) {
        Floats sum = sums.of[i][j];
        if (!tile.is_running) {
          if (!tile.is_first) {
            sum = load_lanes(to, lanes) + sum;
          } else if (tile.bias) {
            sum = sum + broadcast<Floats>(tile.bias[i]);
          }
        }
        store_lanes(sum, to, lanes);
      }
    }
  }
}

template <int kRows, int kPieces>
void run_convolution_tile(const ConvolutionTile<kPieces>& tile) {
  add_to_images(multiply_windows<kRows>(tile), tile);
}

template <int kPieces, int... kRows>
auto find_convolution_tile(int64_t rows, std::integer_sequence<int, kRows...> /*rows*/) {
  static constexpr void (*kTiles[])(const ConvolutionTile<kPieces>&) = {run_convolution_tile<kRows + 1, kPieces>...};
  return kTiles[rows - 1];
}

template <int kPieces>
void convolve_pieces(const ConvolutionPlan& plan, const ConvolutionBlock& block, const float* packed, float* padded) {
  const Convolution& convolution = plan.convolution;
  constexpr int kPanelsAtOnce = 16; // while the filters of a tile stay in the L1 cache
  Panel<kPieces> panels[kPanelsAtOnce];
  int32_t places[ConvolutionPlan::kMostInner];
  std::fill_n(padded, plan.padded_floats(), 0.0F);
  for (int64_t image = block.first_image; image < block.end_image; image += plan.images_at_once) {
    const int64_t images = std::min(plan.images_at_once, block.end_image - image);
    const int64_t end = images * convolution.rows.out_size * plan.pieces_of_row;
    for (int64_t channel = 0; channel < convolution.in_channels; channel += plan.most_channels) {
      const int64_t channels = plan.channels_from(channel);
      find_places(plan, channels, places);
      pad(plan, image, images, channel, padded);
      for (int64_t first = 0; first < end; first += kPanelsAtOnce * kTileVectors * kPieces) {
        int num_panels = 0;
        for (int64_t piece = first; num_panels < kPanelsAtOnce && piece < end; piece += kTileVectors * kPieces) {
          panels[num_panels++] = Panel<kPieces>(plan, image, piece, end);
        }
        for (int64_t tile = block.first_tile; tile < block.end_tile; ++tile) {
          const int64_t out_channel = plan.tile_begin(tile);
          const auto run = find_convolution_tile<kPieces>(
              plan.tile_begin(tile + 1) - out_channel,
              std::make_integer_sequence<int, kTileRows>());
          for (int i = 0; i < num_panels; ++i) {
            run(
                {panels[i],
                 padded,
                 places,
                 channels * convolution.filter_size(),
                 packed + plan.packed_begin(tile, channel),
                 convolution.bias ? convolution.bias + out_channel : nullptr,
                 out_channel,
                 convolution.out_plane(),
                 channel == 0,
                 convolution.order == Convolution::Order::kRunning});
          }
        }
      }
    }
  }
}

// Some images and output channels. `padded`: see ConvolutionPlan.
inline void
convolve(const Convolution& convolution, const ConvolutionBlock& block, const float* packed, float* padded) {
  const ConvolutionPlan plan(convolution, kNumLanes<Floats>);
  (plan.pieces_of_vector == 1   ? convolve_pieces<1>
   : plan.pieces_of_vector == 2 ? convolve_pieces<2>
                                : convolve_pieces<4>)(plan, block, packed, padded);
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
