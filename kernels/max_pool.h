#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// The largest element of each window over planes of float32 without gaps, none of which is empty.
struct MaxPool {
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
    // The first element of a window that is there.
    int64_t first_of(int64_t out) const {
      const int64_t begin = begin_of(out);
      return begin >= 0 ? begin : begin + (-begin + step - 1) / step * step;
    }
  };
  int64_t num_planes;
  Axis rows;
  Axis columns;
};

bool can_pool(const MaxPool& pool);

// As PyTorch's max_pool2d_with_indices: the last NaN of a window, if there is one, else the first of equal ones, row by
// row. `places`, if not null, are those within the plane. In parallel if there is enough to do.
void run(const MaxPool& pool, const float* from, float* values, int64_t* places);

} // namespace lazyplug::kernels
