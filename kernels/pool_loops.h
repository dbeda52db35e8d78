// Pooling in vectors. Compiled within each target's namespace, as kernels/vector.h is.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/pool.h"
#include "kernels/vector.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// The later of two wins if it is larger, or NaN.
void choose(Floats x, Ints place, Floats& best, Ints& best_place) {
  const Ints wins = (x > best) | (x != x);
  best = wins ? x : best;
  best_place = wins ? place : best_place;
}

void store_places(Ints places, int64_t* to, int64_t n) {
  for (int64_t lane = 0; lane < n; ++lane) {
    to[lane] = places[lane];
  }
}

// Every other element.
template <int... kLanes>
Floats load_even(const float* from, std::integer_sequence<int, kLanes...> /*lanes*/) {
  return __builtin_shufflevector(load<Floats>(from), load<Floats>(from + sizeof...(kLanes)), (2 * kLanes)...);
}

// Not inlined: a loop around it would keep the address of each lane, whatever the stride.
[[gnu::noinline]] Floats load_far_apart(const float* from, int64_t stride) {
  Floats result;
  for (int i = 0; i < kNumLanes<Floats>; ++i) {
    result[i] = from[i * stride];
  }
  return result;
}

Floats load_apart(const float* from, int64_t stride) {
  constexpr int kLanes = kNumLanes<Floats>;
  if (stride == 1) {
    return load<Floats>(from);
  }
  if (stride == 2) {
    return load_even(from, std::make_integer_sequence<int, kLanes>());
  }
  return load_far_apart(from, stride);
}

// How many elements there are in the vectors that have all results of a row.
int64_t in_vectors(const Pool& pool) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  return (pool.columns.out_size + kLanes - 1) / kLanes * kLanes;
}

// The rows of a plane that some rows of windows read, with padding, and what the last vector reads beyond them: where
// they are, if no window goes beyond them, and nothing but more of the image lies behind them, or else copied.
class PaddedRows {
 public:
  static constexpr int64_t kRowsAtOnce = 16; // of windows

  // `from` is the first plane.
  PaddedRows(const Pool& pool, const float* from, float padding)
      : pool_(pool), end_of_all_(from + pool.num_planes * pool.rows.in_size * pool.columns.in_size) {
    constexpr int kLanes = kNumLanes<Floats>;
    const auto& columns = pool.columns;
    const int64_t last_column = columns.begin_of(columns.out_size - 1) + (columns.window - 1) * columns.step;
    is_inside_ = columns.padding == 0 && last_column < columns.in_size;
    const int64_t last = (in_vectors(pool) - 1) * columns.stride + (columns.window - 1) * columns.step + kLanes;
    pitch_ = (std::max(last, columns.padding + columns.in_size) + kLanes) / kLanes * kLanes;
    elements_.assign(max_rows() * pitch_, padding);
  }

  int64_t max_rows() const {
    const int64_t at_once = std::min(kRowsAtOnce, pool_.rows.out_size);
    return (at_once - 1) * pool_.rows.stride + (pool_.rows.window - 1) * pool_.rows.step + 1;
  }

  // For the rows of windows from `begin` to `end`. All are copied before one is read, since a load waits for stores of
  // which it needs more than one.
  void read(const float* plane, int64_t begin, int64_t end) {
    const int64_t width = pool_.columns.in_size;
    begin_ = std::max<int64_t>(pool_.rows.begin_of(begin), 0);
    end_ = pool_.rows.end_of(end - 1);
    const bool is_there = is_inside_ && end_of_all_ - (plane + (end_ - 1) * width) >= pitch_;
    first_row_ = is_there ? plane + begin_ * width : elements_.data();
    distance_ = is_there ? width : pitch_;
    if (is_there) {
      return;
    }
    for (int64_t row = begin_; row < end_; ++row) {
      std::copy_n(plane + row * width, width, elements_.data() + (row - begin_) * pitch_ + pool_.columns.padding);
    }
  }
  int64_t begin() const {
    return begin_;
  }
  int64_t end() const {
    return end_;
  }
  const float* row(int64_t row) const {
    return first_row_ + (row - begin_) * distance_;
  }

 private:
  const Pool& pool_;
  const float* const end_of_all_;
  bool is_inside_ = false; // all windows, but for rows of padding
  int64_t pitch_ = 0;      // of copies
  int64_t begin_ = 0;
  int64_t end_ = 0;
  const float* first_row_ = nullptr;
  int64_t distance_ = 0; // from one row to the next
  std::vector<float> elements_;
};

// Calls run(plane, row, end, first) for the rows of windows from `begin` to `end` of all planes, a few of one plane at
// a time; among those of all planes, its first one is `first`.
template <typename Run>
void for_rows_of_planes(const Pool& pool, int64_t begin, int64_t end, const Run& run) {
  const int64_t num_rows = pool.rows.out_size;
  while (begin < end) {
    const int64_t row = begin % num_rows;
    const int64_t count = std::min({end - begin, num_rows - row, PaddedRows::kRowsAtOnce});
    run(begin / num_rows, row, row + count, begin);
    begin += count;
  }
}

// First the largest of a window's elements within each row, then the largest of these: an element of the plane is read
// as often as a row of the window is long, not as often as the window has elements. The order in which equal ones
// and NaN win is that of row by row, so it is the same.
class RowsOfLargest {
 public:
  RowsOfLargest(const Pool& pool, const float* from, bool has_places)
      : pool_(pool), has_places_(has_places), padded_(pool, from, kLeast) {
    const auto& columns = pool.columns;
    pitch_ = in_vectors(pool);
    values_.resize(padded_.max_rows() * pitch_);
    places_.resize(has_places ? values_.size() : 0);
    for (int64_t i = 0; i < pitch_ && has_places; ++i) {
      begin_.push_back(static_cast<int32_t>(columns.begin_of(i)));
      first_.push_back(static_cast<int32_t>(columns.first_of(i)));
    }
  }

  // The rows of windows from `begin` to `end` of a plane.
  void run(const float* plane, int64_t begin, int64_t end, float* values, int64_t* places) {
    padded_.read(plane, begin, end);
    for (int64_t row = padded_.begin(); row < padded_.end(); ++row) {
      has_places_ ? find_within_row<true>(row) : find_within_row<false>(row);
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t out = (row - begin) * pool_.columns.out_size;
      find_among_rows(row, values + out, places ? places + out : nullptr);
    }
  }

 private:
  static constexpr int kLanes = kNumLanes<Floats>;

  template <bool kPlaces>
  void find_within_row(int64_t row) {
    const auto& axis = pool_.columns;
    const float* elements = padded_.row(row);
    const int64_t to = (row - padded_.begin()) * pitch_;
    for (int64_t i = 0; i < pitch_; i += kLanes) {
      Floats best = broadcast<Floats>(kLeast);
      Ints place{};
      Ints begin{};
      if constexpr (kPlaces) {
        place = load<Ints>(first_.data() + i);
        begin = load<Ints>(begin_.data() + i);
      }
      for (int64_t k = 0; k < axis.window; ++k) {
        const int64_t offset = k * axis.step;
        const Floats x = load_apart(elements + i * axis.stride + offset, axis.stride);
        choose(x, begin + static_cast<int32_t>(offset), best, place);
      }
      store(best, values_.data() + to + i);
      if constexpr (kPlaces) {
        store(place, places_.data() + to + i);
      }
    }
  }

  void find_among_rows(int64_t out_row, float* values, int64_t* places) const {
    const auto& axis = pool_.rows;
    const int64_t first = axis.first_of(out_row);
    const auto width = static_cast<int32_t>(pool_.columns.in_size);
    for (int64_t i = 0; i < pool_.columns.out_size; i += kLanes) {
      const int64_t n = std::min<int64_t>(kLanes, pool_.columns.out_size - i);
      Floats best{};
      Ints place{};
      for (int64_t row = first; row < axis.end_of(out_row); row += axis.step) {
        const int64_t at = (row - padded_.begin()) * pitch_ + i;
        const Floats x = load<Floats>(values_.data() + at);
        const Ints place_of_x = places ? load<Ints>(places_.data() + at) + static_cast<int32_t>(row) * width : Ints{};
        if (row == first) {
          best = x;
          place = place_of_x;
        } else {
          choose(x, place_of_x, best, place);
        }
      }
      store_part(best, values + i, n);
      if (places) {
        store_places(place, places + i, n);
      }
    }
  }

  const Pool& pool_;
  const bool has_places_;
  PaddedRows padded_;
  std::vector<int32_t> begin_;  // by window: its first column
  std::vector<int32_t> first_;  // its first one that is there
  int64_t pitch_ = 0;           // of rows of values_ and places_: whole vectors
  std::vector<float> values_;   // of each row of the plane
  std::vector<int32_t> places_; // columns
};

// Calls compute(row, column, out) for the windows of the rows, those of all planes; their results begin at `out`.
template <typename Compute>
void for_windows(const Pool& pool, int64_t begin, int64_t end, const Compute& compute) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t column = 0; column < pool.columns.out_size; ++column) {
      compute(row, column, (row * pool.columns.out_size + column) * pool.num_channels);
    }
  }
}

// Calls take(place, elements) for all elements of one window that are there, row by row.
template <typename Take>
void for_elements(const Pool& pool, int64_t row_of_all, int64_t out_column, const float* from, const Take& take) {
  const auto& [num_planes, rows, columns, num_channels] = pool;
  const int64_t out_row = row_of_all % rows.out_size;
  const float* plane = from + row_of_all / rows.out_size * rows.in_size * columns.in_size * num_channels;
  for (int64_t row = rows.first_of(out_row); row < rows.end_of(out_row); row += rows.step) {
    for (int64_t column = columns.first_of(out_column); column < columns.end_of(out_column); column += columns.step) {
      const int64_t place = row * columns.in_size + column;
      take(static_cast<int32_t>(place), plane + place * num_channels);
    }
  }
}

// Calls compute(channel, n) for as many channels as a vector has.
template <typename Compute>
void for_channels(const Pool& pool, const Compute& compute) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  for (int64_t channel = 0; channel < pool.num_channels; channel += kLanes) {
    compute(channel, std::min(kLanes, pool.num_channels - channel));
  }
}

void find_largest(const Pool& pool, int64_t begin, int64_t end, const float* from, float* values, int64_t* places) {
  if (pool.num_channels == 1) {
    RowsOfLargest rows(pool, from, places != nullptr);
    const int64_t plane_size = pool.rows.in_size * pool.columns.in_size;
    return for_rows_of_planes(pool, begin, end, [&](int64_t plane, int64_t row, int64_t end_row, int64_t first) {
      const int64_t out = first * pool.columns.out_size;
      rows.run(from + plane * plane_size, row, end_row, values + out, places ? places + out : nullptr);
    });
  }
  for_windows(pool, begin, end, [&](int64_t row, int64_t column, int64_t out) {
    const int64_t first = pool.rows.first_of(row % pool.rows.out_size) * pool.columns.in_size;
    for_channels(pool, [&](int64_t channel, int64_t n) {
      Floats best = broadcast<Floats>(kLeast);
      Ints best_place = Ints{} + static_cast<int32_t>(first + pool.columns.first_of(column));
      for_elements(pool, row, column, from, [&](int32_t place, const float* elements) {
        choose(load_part(elements + channel, n, Floats{}), Ints{} + place, best, best_place);
      });
      store_part(best, values + out + channel, n);
      if (places) {
        store_places(best_place, places + out + channel, n);
      }
    });
  });
}

// How many elements of a window's axis count.
int32_t count_of(const Pool::Axis& axis, int64_t out, bool counts_padding) {
  const int64_t begin = axis.begin_of(out);
  const int64_t end = std::min(begin + axis.window, axis.in_size + axis.padding);
  return static_cast<int32_t>(counts_padding ? end - begin : axis.end_of(out) - axis.first_of(out));
}

// Zeros beside a plane change no sum.
void find_mean_of_row(
    const Pool& pool,
    const PaddedRows& padded,
    const std::vector<int32_t>& counts, // by column
    bool counts_padding,
    int64_t out_row,
    float* to) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  const auto& [num_planes, rows, columns, num_channels] = pool;
  const int32_t num_rows = count_of(rows, out_row, counts_padding);
  for (int64_t i = 0; i < columns.out_size; i += kLanes) {
    Floats sum{};
    for (int64_t row = rows.first_of(out_row); row < rows.end_of(out_row); ++row) {
      for (int64_t k = 0; k < columns.window; ++k) {
        sum += load_apart(padded.row(row) + i * columns.stride + k, columns.stride);
      }
    }
    const Floats count = __builtin_convertvector(load<Ints>(counts.data() + i) * num_rows, Floats);
    store_part(sum / count, to + i, std::min(kLanes, columns.out_size - i));
  }
}

void find_mean(const Pool& pool, bool counts_padding, int64_t begin, int64_t end, const float* from, float* to) {
  if (pool.num_channels == 1) {
    PaddedRows padded(pool, from, 0);
    std::vector<int32_t> counts;
    for (int64_t i = 0; i < pool.columns.out_size; ++i) {
      counts.push_back(count_of(pool.columns, i, counts_padding));
    }
    counts.resize(in_vectors(pool), 1);
    const int64_t plane_size = pool.rows.in_size * pool.columns.in_size;
    return for_rows_of_planes(pool, begin, end, [&](int64_t plane, int64_t row, int64_t end_row, int64_t first) {
      padded.read(from + plane * plane_size, row, end_row);
      for (int64_t i = row; i < end_row; ++i, ++first) {
        find_mean_of_row(pool, padded, counts, counts_padding, i, to + first * pool.columns.out_size);
      }
    });
  }
  for_windows(pool, begin, end, [&](int64_t row, int64_t column, int64_t out) {
    const int32_t num_rows = count_of(pool.rows, row % pool.rows.out_size, counts_padding);
    const auto count = static_cast<float>(num_rows * count_of(pool.columns, column, counts_padding));
    for_channels(pool, [&](int64_t channel, int64_t n) {
      Floats sum{};
      for_elements(pool, row, column, from, [&](int32_t /*place*/, const float* elements) {
        sum += load_part(elements + channel, n, Floats{});
      });
      store_part(sum / count, to + out + channel, n);
    });
  });
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
