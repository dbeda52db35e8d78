#pragma once

#include <cstdint>
#include <vector>

#include "kernels/pool.h"

namespace lazyplug::kernels {

struct ConvolutionCase {
  int64_t images;
  int64_t in_channels;
  int64_t out_channels;
  int64_t rows;
  int64_t columns;
  int64_t window_rows;
  int64_t window_columns;
  int64_t step;
  int64_t stride;
  int64_t padding;
};

inline Pool::Axis axis(int64_t in_size, int64_t window, const ConvolutionCase& given) {
  const int64_t left = in_size + 2 * given.padding - (window - 1) * given.step - 1;
  return {in_size, left / given.stride + 1, window, given.step, given.stride, given.padding};
}

inline std::vector<ConvolutionCase> all_convolutions() {
  return {
      {2, 16, 16, 8, 8, 3, 3, 1, 1, 1},
      {2, 3, 6, 28, 28, 5, 5, 1, 1, 2},
      {3, 40, 25, 9, 11, 3, 3, 1, 1, 1},
      {2, 17, 13, 32, 32, 3, 3, 1, 2, 1},
      {1, 3, 5, 33, 47, 7, 7, 1, 2, 3},
      {5, 20, 12, 4, 4, 3, 3, 1, 1, 1},
      {9, 5, 4, 2, 3, 2, 2, 1, 1, 0},
      {2, 30, 24, 10, 10, 1, 1, 1, 1, 0},
      {2, 12, 8, 20, 21, 3, 2, 2, 3, 1},
      {4, 8, 7, 1, 30, 1, 3, 1, 1, 1},
      {2, 4, 3, 7, 7, 1, 1, 1, 2, 0},
      {1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
      {2, 2, 3, 5, 70, 3, 3, 1, 1, 1},
      {2, 6, 5, 6, 6, 3, 3, 3, 1, 3},
      {3, 2, 2, 3, 5, 3, 5, 1, 4, 2},
      {1, 2, 30, 40, 40, 3, 3, 1, 1, 1}};
}

} // namespace lazyplug::kernels
