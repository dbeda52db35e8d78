#pragma once

#include <algorithm>
#include <cstdint>

namespace lazyplug::kernels {

// Windows over planes of float32 without gaps. The elements of several channels may lie side by side: each channel has
// results of its own.
struct Pool {
  struct Axis {
    int64_t in_size;
    int64_t out_size;
    int64_t window; // how many elements
    int64_t step;   // from one of them to the next
    int64_t stride; // from one window to the next
    int64_t padding;

    int64_t begin_of(int64_t out) const { // before the first element, if there is padding
      return out * stride - padding;
    }
    // The first element of a window that is there, and the end of these.
    int64_t first_of(int64_t out) const {
      const int64_t begin = begin_of(out);
      return begin >= 0 ? begin : begin + (-begin + step - 1) / step * step;
    }
    int64_t end_of(int64_t out) const {
      return std::min(begin_of(out) + (window - 1) * step + 1, in_size);
    }
  };
  int64_t num_planes;
  Axis rows;
  Axis columns;
  int64_t num_channels = 1; // of each element of a plane
};

// Whether there is an element in each window, and places have 32 bits.
bool can_pool(const Pool& pool);
// Not where most of what it takes to make a vector is for nobody: one is of windows of one row, which may be few, or
// far apart.
bool is_quicker_here(const Pool& pool);

// Both in parallel if there is enough to do.
//
// The largest element of each window, as PyTorch's max_pool2d_with_indices: the last NaN, if there is one, else the
// first of equal ones, row by row. `places`, if not null, are those within the plane.
void find_largest(const Pool& pool, const float* from, float* values, int64_t* places);
// Their mean, summed up row by row, as PyTorch's avg_pool2d. The steps must be 1. `counts_padding`: as zeros, but not
// what is beyond it.
void find_mean(const Pool& pool, bool counts_padding, const float* from, float* to);

} // namespace lazyplug::kernels
