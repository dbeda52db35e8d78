#pragma once

#include <cstdint>
#include <vector>

namespace lazyplug::kernels {

// Copies elements of planes of float32 without gaps: that of a row and column of the result is the one of rows[row] and
// columns[column] of the plane. Equal rows follow each other.
struct Upsample {
  int64_t num_planes;
  int64_t in_height;
  int64_t in_width;
  std::vector<int32_t> rows;
  std::vector<int32_t> columns;
};

// In parallel if there is enough to do.
void run(const Upsample& upsample, const float* from, float* to);

} // namespace lazyplug::kernels
