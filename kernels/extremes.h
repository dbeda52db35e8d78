#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lazyplug::kernels {

// Over the middle one of three dimensions, of memory without gaps; none of the sizes is 0.
struct Search {
  int64_t outer;
  int64_t searched;
  int64_t inner;
  bool is_least; // the smallest is searched, not the largest
};

bool can_search(c10::ScalarType dtype);

// Writes the extremes, unless `values` is null, and where they are: outer * inner elements each. The first NaN, if
// there is one, else the first of equal ones, as PyTorch's max(dim) and argmax.
void search(const Search& search, c10::ScalarType dtype, const void* from, void* values, int64_t* places);

// Writes the extremes of rows (`inner` is 1), as PyTorch's max() and amax. False if one of them is a NaN, or 0 while
// there are zeros of both signs: which of these PyTorch's kernels find depends on their vectors.
bool find_extremes(const Search& search, c10::ScalarType dtype, const void* from, void* values);

// Whether all of a row are true, or any is, of each of `rows` rows.
void test(int64_t rows, int64_t columns, bool all, const bool* from, bool* out);

} // namespace lazyplug::kernels
