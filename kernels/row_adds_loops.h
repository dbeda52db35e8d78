// Loops of kernels/row_adds.h. Compiled within its target's namespace, with its options, by tile_loops.inc.cpp alone.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/row_adds.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

template <typename T>
void add_row(int64_t n, const T* from, T factor, T* to) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    to[i] = std::fma(factor, from[i], to[i]);
  }
}

// To rows of the table from `begin` to `end`.
template <typename T>
void add_rows(const RowAdds<T>& adds, int64_t begin, int64_t end) {
  const int64_t n = adds.row_length;
  if (adds.is_from_zero) {
    std::fill(adds.table + begin * n, adds.table + end * n, T(0));
  }
  for (int64_t i = 0; i < adds.count; ++i) {
    if (adds.to[i] >= begin && adds.to[i] < end) {
      const T factor = adds.factors ? adds.factors[adds.factor_of[i]] : T(1);
      add_row(n, adds.rows + (adds.from ? adds.from[i] : i) * n, factor, adds.table + adds.to[i] * n);
    }
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
