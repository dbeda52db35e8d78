#include "kernels/extremes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <type_traits>

namespace lazyplug::kernels {
namespace {

// `Compare`: whether its first argument is further out.
template <typename T, typename Compare>
void search_all(const Search& search, const T* from, T* values, int64_t* places) {
  for (int64_t outer = 0; outer < search.outer; ++outer, from += search.searched * search.inner) {
    for (int64_t inner = 0; inner < search.inner; ++inner) {
      const T* elements = from + inner;
      T best = *elements;
      int64_t place = 0;
      for (int64_t i = 1; i < search.searched && best == best; ++i) { // until there is a NaN
        const T element = elements[i * search.inner];
        if (Compare()(element, best) || element != element) {
          best = element;
          place = i;
        }
      }
      *places++ = place;
      if (values) {
        *values++ = best;
      }
    }
  }
}

// Of one row; nothing if there is a NaN. Lanes of their own, so that the compiler makes vectors of them.
template <typename T, typename Compare>
std::optional<T> extreme_of(const T* from, int64_t size) {
  constexpr int kLanes = 16;
  T best[kLanes];
  bool is_nan[kLanes] = {};
  std::fill_n(best, kLanes, *from);
  const auto take = [&](int lane, T element) {
    best[lane] = Compare()(element, best[lane]) ? element : best[lane];
    is_nan[lane] |= element != element;
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      take(lane, from[i + lane]);
    }
  }
  for (int lane = 0; i < size; ++i, ++lane) {
    take(lane, from[i]);
  }
  const bool has_nan = std::any_of(is_nan, is_nan + kLanes, [](bool lane) { return lane; });
  // The first one that is not less far out than any other.
  const auto is_less = [](T a, T b) { return Compare()(b, a); };
  return has_nan ? std::nullopt : std::optional(*std::max_element(best, best + kLanes, is_less));
}

template <typename T>
bool has_both_zeros(const T* from, int64_t size) {
  bool found[2] = {};
  for (int64_t i = 0; i < size; ++i) {
    if (from[i] == 0) {
      found[std::signbit(from[i]) ? 1 : 0] = true;
    }
  }
  return found[0] && found[1];
}

template <typename T>
bool find_typed(const Search& search, const void* memory, void* values) {
  const T* from = static_cast<const T*>(memory);
  T* to = static_cast<T*>(values);
  for (int64_t row = 0; row < search.outer; ++row, from += search.searched) {
    const auto found = search.is_least ? extreme_of<T, std::less<T>>(from, search.searched)
                                       : extreme_of<T, std::greater<T>>(from, search.searched);
    if (!found || (std::is_floating_point_v<T> && *found == 0 && has_both_zeros(from, search.searched))) {
      return false;
    }
    to[row] = *found;
  }
  return true;
}

template <typename T>
void search_typed(const Search& search, const void* from, void* values, int64_t* places) {
  const T* elements = static_cast<const T*>(from);
  search.is_least ? search_all<T, std::less<T>>(search, elements, static_cast<T*>(values), places)
                  : search_all<T, std::greater<T>>(search, elements, static_cast<T*>(values), places);
}

} // namespace

bool can_search(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double || dtype == c10::ScalarType::Long;
}

void search(const Search& search, c10::ScalarType dtype, const void* from, void* values, int64_t* places) {
  dtype == c10::ScalarType::Float    ? search_typed<float>(search, from, values, places)
  : dtype == c10::ScalarType::Double ? search_typed<double>(search, from, values, places)
                                     : search_typed<int64_t>(search, from, values, places);
}

bool find_extremes(const Search& search, c10::ScalarType dtype, const void* from, void* values) {
  return dtype == c10::ScalarType::Float    ? find_typed<float>(search, from, values)
         : dtype == c10::ScalarType::Double ? find_typed<double>(search, from, values)
                                            : find_typed<int64_t>(search, from, values);
}

void test(int64_t rows, int64_t columns, bool all, const bool* from, bool* out) {
  const auto is_true = [](bool value) { return value; };
  for (int64_t row = 0; row < rows; ++row, from += columns) {
    out[row] = all ? std::all_of(from, from + columns, is_true) : std::any_of(from, from + columns, is_true);
  }
}

} // namespace lazyplug::kernels
