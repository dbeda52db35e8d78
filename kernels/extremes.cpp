#include "kernels/extremes.h"

#include <algorithm>
#include <functional>

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

void test(int64_t rows, int64_t columns, bool all, const bool* from, bool* out) {
  const auto is_true = [](bool value) { return value; };
  for (int64_t row = 0; row < rows; ++row, from += columns) {
    out[row] = all ? std::all_of(from, from + columns, is_true) : std::any_of(from, from + columns, is_true);
  }
}

} // namespace lazyplug::kernels
