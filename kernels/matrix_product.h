// Products of matrices. Compiled within the namespace of targets with AVX2 or AVX-512, as kernels/vector.h is.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/vector.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// A tile of the result stays in registers while its sums grow: beside its vectors there is room for two of b, and one
// of a. What it reads of b, a panel, is copied to lie as it is read, and stays in the L1 cache while tiles go down the
// rows. A panel of few columns is one vector wide.
constexpr int kTileVectors = 2;
constexpr int kTileRows = kVectorBytes == 64 ? 12 : 6;
constexpr int64_t kPanelColumns = kTileVectors * kNumLanes<Floats>;
constexpr int64_t kPanelElements = kLongestBlock * kPanelColumns;
// As many rows of a as stay in the L2 cache while panels go by.
constexpr int64_t kRowsAtOnce = 40 * kTileRows;

// Up to kTileVectors vectors of columns of b, whose rows lie `step` apart.
struct PanelOfB {
  const float* data;
  int64_t step;
};

template <int kRows, int kVectors = kTileVectors>
struct TileSums {
  Floats of[kRows][kVectors];
};

// kByRows: rows of a lie one after the other, by `a_step`; else its columns do.
template <int kRows, int kVectors, bool kByRows>
[[gnu::always_inline]] inline TileSums<kRows, kVectors>
multiply_tile(int64_t inner, const float* a, int64_t a_step, PanelOfB panel) {
  TileSums<kRows, kVectors> sums{};
  const int64_t row = kByRows ? a_step : 1;
  const int64_t step = kByRows ? 1 : a_step;
#pragma GCC unroll 2
  for (int64_t k = 0; k < inner; ++k, a += step, panel.data += panel.step) {
    Floats b[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      b[j] = load<Floats>(panel.data + j * kNumLanes<Floats>);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const auto x = broadcast<Floats>(a[i * row]);
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) {
        sums.of[i][j] = multiply_add(x, b[j], sums.of[i][j]);
      }
    }
  }
  return sums;
}

// Where a tile is added to, or how it begins.
struct TileResult {
  const float* start; // null: 0
  int64_t start_row;  // stride
  float* result;
  int64_t result_row; // stride
  int64_t columns;    // at most kPanelColumns
};

// Of these columns, a vector's.
template <int kRows, int kVectors, typename LoadVector, typename StoreVector>
[[gnu::always_inline]] inline void
add_vectors(const TileSums<kRows, kVectors>& sums, const TileResult& tile, int j, LoadVector load, StoreVector store) {
  const int64_t first = j * kNumLanes<Floats>;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    Floats sum = sums.of[i][j];
    if (tile.start) {
      sum = load(tile.start + i * tile.start_row + first) + sum;
    }
    store(sum, tile.result + i * tile.result_row + first);
  }
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_tile(const TileSums<kRows, kVectors>& sums, const TileResult& tile) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const int64_t n = std::min(tile.columns - j * kLanes, kLanes);
    if (n == kLanes) { // to store a part takes some processors long
      add_vectors(sums, tile, j, load<Floats>, store<Floats>);
    } else if (n > 0) {
      const auto load = [n](const float* from) { return load_part<Floats>(from, n); };
      const auto store = [n](Floats x, float* to) { store_part(x, to, n); };
      add_vectors(sums, tile, j, load, store);
    }
  }
}

template <int kRows, int kVectors, bool kByRows>
void run_tile(int64_t inner, const float* a, int64_t a_step, const PanelOfB& panel, const TileResult& tile) {
  if (tile.start) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      __builtin_prefetch(tile.start + i * tile.start_row);
    }
  }
  add_tile(multiply_tile<kRows, kVectors, kByRows>(inner, a, a_step, panel), tile);
}

using RunTile = void (*)(int64_t inner, const float* a, int64_t a_step, const PanelOfB& panel, const TileResult& tile);

template <bool kByRows, int... kRows>
RunTile find_tile(int64_t rows, int64_t columns, std::integer_sequence<int, kRows...> /*rows*/) {
  static constexpr RunTile kNarrow[] = {run_tile<kRows + 1, 1, kByRows>...};
  static constexpr RunTile kWide[] = {run_tile<kRows + 1, kTileVectors, kByRows>...};
  return (columns <= kNumLanes<Floats> ? kNarrow : kWide)[rows - 1];
}

// ---- panels ----

constexpr int kLanesOfSquare = kNumLanes<Floats>;

// Swaps lanes between pairs of vectors that are kDistance apart: of each block of 2 x 2, those beside the diagonal.
template <int kDistance, int... kLanes>
[[gnu::always_inline]] inline void swap_blocks(
    Floats (&rows)[kLanesOfSquare],
    std::integer_sequence<int, kLanes...> /*lanes*/) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanesOfSquare; ++i) {
    if ((i & kDistance) == 0) {
      const Floats low = rows[i];
      const Floats high = rows[i + kDistance];
      rows[i] = __builtin_shufflevector(
          low,
          high,
          ((kLanes & kDistance) == 0 ? kLanes : kLanesOfSquare + kLanes - kDistance)...);
      rows[i + kDistance] = __builtin_shufflevector(
          low,
          high,
          ((kLanes & kDistance) == 0 ? kLanes + kDistance : kLanesOfSquare + kLanes)...);
    }
  }
}

[[gnu::always_inline]] inline void transpose(Floats (&rows)[kLanesOfSquare]) {
  constexpr auto kLanes = std::make_integer_sequence<int, kLanesOfSquare>();
  if constexpr (kLanesOfSquare == 16) {
    swap_blocks<8>(rows, kLanes);
  }
  swap_blocks<4>(rows, kLanes);
  swap_blocks<2>(rows, kLanes);
  swap_blocks<1>(rows, kLanes);
}

// The `inner` elements of up to a vector of rows, which lie `row` apart, element by element, `step` apart. A whole
// vector is written for each: lanes without a row are 0, and those beyond `step` are those of the next one.
[[gnu::always_inline]] inline void
pack_transposed(int64_t inner, int64_t num_rows, const float* from, int64_t row, float* to, int64_t step) {
  for (int64_t k = 0; k < inner; k += kLanesOfSquare) {
    Floats rows[kLanesOfSquare];
    const int64_t n = std::min<int64_t>(inner - k, kLanesOfSquare);
#pragma GCC unroll 16
    for (int i = 0; i < kLanesOfSquare; ++i) {
      rows[i] = i < num_rows ? load_part<Floats>(from + i * row + k, n) : Floats{};
    }
    transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < kLanesOfSquare; ++i) {
      if (i < n) {
        store(rows[i], to + (k + i) * step);
      }
    }
  }
}

// `columns` of b, which lie one after the other, each by `column` from the one before.
inline PanelOfB pack_columns(int64_t inner, int64_t columns, const float* b, int64_t column, float* panel) {
  const int64_t step = columns <= kLanesOfSquare ? kLanesOfSquare : kPanelColumns;
  for (int64_t first = 0; first < step; first += kLanesOfSquare) {
    pack_transposed(inner, columns - first, b + first * column, column, panel + first, step);
  }
  return {panel, step};
}

template <int kVectors>
inline PanelOfB pack_vectors(int64_t inner, int64_t columns, const float* b, int64_t row, float* panel) {
  constexpr int64_t kStep = kVectors * kNumLanes<Floats>;
  float* to = panel;
  for (int64_t k = 0; k < inner; ++k, b += row, to += kStep) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      const int64_t first = j * kNumLanes<Floats>;
      const int64_t n = std::clamp<int64_t>(columns - first, 0, kNumLanes<Floats>);
      store(load_part<Floats>(b + first, n), to + first);
    }
  }
  return {panel, kStep};
}

// Rows of b, of which `columns` are taken.
inline PanelOfB pack_rows(int64_t inner, int64_t columns, const float* b, int64_t row, float* panel) {
  return columns <= kNumLanes<Floats> ? pack_vectors<1>(inner, columns, b, row, panel)
                                      : pack_vectors<kTileVectors>(inner, columns, b, row, panel);
}

// ---- blocks ----

// Rows of a, in tiles that are all about as high.
struct TiledRows {
  const float* data;
  int64_t rows;
  int64_t step; // from a row to the next one, if rows lie one after the other, or else from a column to the next one
  int64_t tile_row; // from a tile's rows to those of the next one, for each row

  int64_t num_tiles() const {
    return (rows + kTileRows - 1) / kTileRows;
  }
  int64_t tile_begin(int64_t tile) const {
    return rows * tile / num_tiles();
  }
};

// Rows that lie so many bytes apart share one set of the L1 cache, which holds fewer lines than a tile has rows.
constexpr int64_t kFloatsOfWay = 1024;
// Columns that lie so far apart are on more pages than the processor has at hand.
constexpr int64_t kFloatsOfFarColumns = 256;
// For fewer columns, to pack a takes longer than what it saves.
constexpr int64_t kLeastColumnsToPack = 4 * kPanelColumns;

// For fewer tiles, to pack b takes longer than what it saves.
constexpr int64_t kMostTilesInPlace = 3;

// The tiles' rows, column by column. `has_rows`: a's lie one after the other.
inline TiledRows pack_tiles(const TiledRows& a, int64_t inner, bool has_rows) {
  static thread_local std::vector<float> packed;
  packed.resize(std::max<size_t>(packed.size(), a.rows * inner + kLanesOfSquare));
  for (int64_t tile = 0; tile < a.num_tiles(); ++tile) {
    const int64_t first = a.tile_begin(tile);
    const int64_t rows = a.tile_begin(tile + 1) - first;
    float* to = packed.data() + first * inner;
    if (has_rows) {
      pack_transposed(inner, rows, a.data + first * a.step, a.step, to, rows);
      continue;
    }
    for (int64_t k = 0; k < inner; ++k) {
      store(load_part<Floats>(a.data + first + k * a.step, rows), to + k * rows);
    }
  }
  return {packed.data(), a.rows, /*step=*/0, /*tile_row=*/inner};
}

// Rows of one panel of the result, tile by tile. A step of 0: columns of a tile lie one after the other.
template <bool kByRows>
void run_panel(const TiledRows& a, int64_t inner, const PanelOfB& panel, TileResult tile) {
  constexpr auto kRows = std::make_integer_sequence<int, kTileRows>();
  for (int64_t i = 0; i < a.num_tiles(); ++i) {
    const int64_t first = a.tile_begin(i);
    const int64_t rows = a.tile_begin(i + 1) - first;
    const auto run = find_tile<kByRows>(rows, tile.columns, kRows);
    run(inner, a.data + first * a.tile_row, a.step == 0 ? rows : a.step, panel, tile);
    tile.start += tile.start ? rows * tile.start_row : 0;
    tile.result += rows * tile.result_row;
  }
}

inline void run_inner_block(const Gemm& gemm, const GemmBlock& block, int64_t place, int64_t inner) {
  alignas(64) float packed[kPanelElements];
  const bool is_first = place == 0;
  const bool has_rows = gemm.a.column_stride == 1;
  TiledRows a{
      gemm.a.data + block.first_row * gemm.a.row_stride + place * gemm.a.column_stride,
      block.end_row - block.first_row,
      has_rows ? gemm.a.row_stride : gemm.a.column_stride,
      gemm.a.row_stride};
  const bool is_far_apart = has_rows ? a.step % kFloatsOfWay == 0 : a.step >= kFloatsOfFarColumns;
  const bool is_packed = is_far_apart && block.end_column - block.first_column >= kLeastColumnsToPack;
  a = is_packed ? pack_tiles(a, inner, has_rows) : a;
  for (int64_t column = block.first_column; column < block.end_column; column += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, block.end_column - column);
    const float* b = gemm.b.data + place * gemm.b.row_stride + column * gemm.b.column_stride;
    const bool is_read_in_place =
        a.num_tiles() <= kMostTilesInPlace && gemm.b.column_stride == 1 && columns % kNumLanes<Floats> == 0;
    const PanelOfB panel = is_read_in_place            ? PanelOfB{b, gemm.b.row_stride}
                           : gemm.b.column_stride == 1 ? pack_rows(inner, columns, b, gemm.b.row_stride, packed)
                                                       : pack_columns(inner, columns, b, gemm.b.column_stride, packed);
    float* result = gemm.result + block.first_row * gemm.result_row + column;
    const float* start = gemm.start ? gemm.start + block.first_row * gemm.start_row + column : nullptr;
    const TileResult tile = is_first ? TileResult{start, gemm.start_row, result, gemm.result_row, columns}
                                     : TileResult{result, gemm.result_row, result, gemm.result_row, columns};
    has_rows && !is_packed ? run_panel<true>(a, inner, panel, tile) : run_panel<false>(a, inner, panel, tile);
  }
}

void run_gemm(const Gemm& gemm, const GemmBlock& block) {
  GemmBlock rows = block;
  for (rows.first_row = block.first_row; rows.first_row < block.end_row; rows.first_row = rows.end_row) {
    rows.end_row = std::min(block.end_row, rows.first_row + kRowsAtOnce);
    for (int64_t place = 0, inner = 0; place < gemm.inner; place += inner) {
      inner = inner_block(gemm.inner, place, gemm.longest_block);
      run_inner_block(gemm, rows, place, inner);
    }
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
