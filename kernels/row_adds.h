#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// Rows of float32 or float64 that are added, in order, to rows of a table, neither with gaps: times a number, if there
// are such, multiplied and added at once. It has the bits of one after the other for any number of threads.
template <typename T>
struct RowAdds {
  int64_t row_length;
  int64_t num_rows; // of the table
  T* table;
  bool is_from_zero; // what stands in the table is not read
  int64_t count;
  const T* rows;
  const int64_t* from = nullptr;      // of each, its place among the rows; null: they stand in order
  const int64_t* to;                  // its place in the table; if there is none, it is not added
  const T* factors = nullptr;         // null: each is 1
  const int64_t* factor_of = nullptr; // of each, the place of its factor
};

// In parallel if there is enough to do.
void run(const RowAdds<float>& adds);
void run(const RowAdds<double>& adds);

} // namespace lazyplug::kernels
