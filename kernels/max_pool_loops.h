// Pooling in vectors. Compiled within each target's namespace, as kernels/vector.h is.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/max_pool.h"
#include "kernels/vector.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// First the largest of a window's elements within each row, then the largest of these: an element of the plane is read
// as often as a row of the window is long, not as often as the window has elements. The order in which equal ones
// and NaN win is that of row by row, so it is the same.
class RowsOfMaxPool {
 public:
  RowsOfMaxPool(const MaxPool& pool, bool has_places) : pool_(pool), has_places_(has_places) {
    const auto& columns = pool.columns;
    pitch_ = (columns.out_size + kLanes - 1) / kLanes * kLanes;
    // What the last vector reads, too.
    const int64_t last = (pitch_ - 1) * columns.stride + (columns.window - 1) * columns.step + kLanes;
    padded_pitch_ = (std::max(last, columns.padding + columns.in_size) + kLanes) / kLanes * kLanes;
    const int64_t rows_at_once = (kRowsAtOnce - 1) * pool.rows.stride + (pool.rows.window - 1) * pool.rows.step + 1;
    padded_.assign(rows_at_once * padded_pitch_, kLeast);
    values_.resize(rows_at_once * pitch_);
    places_.resize(has_places ? values_.size() : 0);
    for (int64_t i = 0; i < pitch_ && has_places; ++i) {
      begin_.push_back(static_cast<int32_t>(columns.begin_of(i)));
      first_.push_back(static_cast<int32_t>(columns.first_of(i)));
    }
  }

  // The rows of windows from `begin` to `end`, of all planes.
  void run(int64_t begin, int64_t end, const float* from, float* values, int64_t* places) {
    const int64_t num_rows = pool_.rows.out_size;
    while (begin < end) {
      const int64_t plane = begin / num_rows;
      const int64_t row = begin % num_rows;
      const int64_t count = std::min({end - begin, num_rows - row, kRowsAtOnce});
      find_within_rows(from + plane * pool_.rows.in_size * pool_.columns.in_size, row, row + count);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t out = (begin + i) * pool_.columns.out_size;
        find_among_rows(row + i, values + out, places ? places + out : nullptr);
      }
      begin += count;
    }
  }

 private:
  static constexpr int kLanes = kNumLanes<Floats>;
  static constexpr float kLeast = -std::numeric_limits<float>::infinity();
  static constexpr int64_t kRowsAtOnce = 16;

  static void choose(Floats x, Ints place, Floats& best, Ints& best_place) {
    const Ints wins = (x > best) | (x != x);
    best = wins ? x : best;
    best_place = wins ? place : best_place;
  }
  static Ints load_ints(const int32_t* from) {
    Ints result;
    std::memcpy(&result, from, sizeof(result));
    return result;
  }

  // Every other, or every so many, from the first on.
  template <int... kEven>
  static Floats even(const float* from, std::integer_sequence<int, kEven...> /*unused*/) {
    return __builtin_shufflevector(load<Floats>(from), load<Floats>(from + kLanes), (2 * kEven)...);
  }
  static Floats load_apart(const float* from, int64_t stride) {
    if (stride == 1) {
      return load<Floats>(from);
    }
    if (stride == 2) {
      return even(from, std::make_integer_sequence<int, kLanes>());
    }
    Floats result;
    for (int i = 0; i < kLanes; ++i) {
      result[i] = from[i * stride];
    }
    return result;
  }

  void find_within_rows(const float* plane, int64_t begin, int64_t end) {
    const auto& axis = pool_.rows;
    first_row_ = std::max<int64_t>(axis.begin_of(begin), 0);
    const int64_t last_row = std::min(axis.begin_of(end - 1) + (axis.window - 1) * axis.step, axis.in_size - 1);
    const int64_t width = pool_.columns.in_size;
    // All of them before they are read: a load waits for stores of which it needs more than one.
    for (int64_t row = first_row_; row <= last_row; ++row) {
      float* to = padded_.data() + (row - first_row_) * padded_pitch_ + pool_.columns.padding;
      std::copy_n(plane + row * width, width, to);
    }
    for (int64_t row = 0; row <= last_row - first_row_; ++row) {
      has_places_ ? find_within_row<true>(row) : find_within_row<false>(row);
    }
  }

  template <bool kPlaces>
  void find_within_row(int64_t row) {
    const auto& axis = pool_.columns;
    const float* elements = padded_.data() + row * padded_pitch_;
    for (int64_t i = 0; i < pitch_; i += kLanes) {
      Floats best = broadcast<Floats>(kLeast);
      Ints place{};
      Ints begin{};
      if constexpr (kPlaces) {
        place = load_ints(first_.data() + i);
        begin = load_ints(begin_.data() + i);
      }
      for (int64_t k = 0; k < axis.window; ++k) {
        const int64_t offset = k * axis.step;
        const Floats x = load_apart(elements + i * axis.stride + offset, axis.stride);
        choose(x, begin + static_cast<int32_t>(offset), best, place);
      }
      store(best, values_.data() + row * pitch_ + i);
      if (kPlaces) {
        std::memcpy(places_.data() + row * pitch_ + i, &place, sizeof(place));
      }
    }
  }

  void find_among_rows(int64_t out_row, float* values, int64_t* places) const {
    const auto& axis = pool_.rows;
    const int64_t first = axis.first_of(out_row);
    const int64_t end = std::min(axis.begin_of(out_row) + (axis.window - 1) * axis.step + 1, axis.in_size);
    const auto width = static_cast<int32_t>(pool_.columns.in_size);
    for (int64_t i = 0; i < pool_.columns.out_size; i += kLanes) {
      const int64_t n = std::min<int64_t>(kLanes, pool_.columns.out_size - i);
      Floats best{};
      Ints place{};
      for (int64_t row = first; row < end; row += axis.step) {
        const int64_t at = (row - first_row_) * pitch_ + i;
        const Floats x = load<Floats>(values_.data() + at);
        const Ints place_of_x = places ? load_ints(places_.data() + at) + static_cast<int32_t>(row) * width : Ints{};
        if (row == first) {
          best = x;
          place = place_of_x;
        } else {
          choose(x, place_of_x, best, place);
        }
      }
      store_part(best, values + i, n);
      for (int64_t lane = 0; places && lane < n; ++lane) {
        places[i + lane] = place[lane];
      }
    }
  }

  const MaxPool& pool_;
  const bool has_places_;
  int64_t pitch_ = 0; // of rows of values_ and places_: whole vectors
  int64_t padded_pitch_ = 0;
  std::vector<float> padded_;  // rows of the plane, with padding
  std::vector<int32_t> begin_; // by window: its first column
  std::vector<int32_t> first_; // its first one that is there
  int64_t first_row_ = 0;      // of values_ and places_
  std::vector<float> values_;
  std::vector<int32_t> places_; // columns
};

void max_pool(const MaxPool& pool, int64_t begin, int64_t end, const float* from, float* values, int64_t* places) {
  RowsOfMaxPool(pool, places != nullptr).run(begin, end, from, values, places);
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
