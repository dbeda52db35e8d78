#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pool.h"

namespace lazyplug::kernels {

// A float32 convolution of images of several channels, with filters for each channel of the result. All are without
// gaps, planes row by row, one channel after the other.
//
// oneDNN, which PyTorch's CPU uses, takes 40 microseconds to find out how to compute one, and copies images and results
// into another layout and back. Small ones take less time here, with its bits: fused multiply-adds in one of the orders
// below.
//
// The gradient of a convolution's input is one, too, where windows are one element apart: of the gradient of the
// result, with the same filters, read from their ends.
struct Convolution {
  // Of the products of a sum.
  enum class Order : uint8_t {
    // Sums of blocks of 16 channels, by places of the filter and then by channels, are added up. The bias follows the
    // first block. oneDNN's with AVX-512, and, with one block, that for filters of one element.
    kBlocks,
    // One sum, by channels and then by places of the filter. The bias follows it. That of a product of matrices.
    kChain,
    // One sum, which begins with the bias and goes on through blocks of 8 channels, by places of the filter and then by
    // channels. oneDNN's with AVX2.
    kRunning
  };

  int64_t num_images;
  int64_t in_channels;
  int64_t out_channels;
  Pool::Axis rows;
  Pool::Axis columns;
  const float* images = nullptr;
  const float* filters = nullptr;
  const float* bias = nullptr; // 0
  float* result = nullptr;
  bool is_gradient = false; // filters are of input channels, for each output channel
  Order order = Order::kBlocks;

  int64_t filter_size() const {
    return rows.window * columns.window;
  }
  int64_t in_plane() const {
    return rows.in_size * columns.in_size;
  }
  int64_t out_plane() const {
    return rows.out_size * columns.out_size;
  }
  // Of a block. Filters of one element have one block.
  static constexpr int64_t kBlock = 16;
  static constexpr int64_t kRunningBlock = 8;
  // The channels of which products are added up at a time, which may be several blocks of a running sum.
  int64_t channels_at_once() const {
    constexpr int64_t kRunningAtOnce = 4 * kRunningBlock;
    return order == Order::kRunning ? std::min(in_channels, kRunningAtOnce)
           : order == Order::kChain || filter_size() == 1 || in_channels < kBlock ? in_channels
                                                                                  : kBlock;
  }
  bool has_padding() const {
    return rows.padding > 0 || columns.padding > 0;
  }
  double num_multiplications() const { // of any sizes
    double result = 1;
    for (const int64_t factor :
         {num_images, in_channels, out_channels, rows.out_size, columns.out_size, rows.window, columns.window}) {
      result *= static_cast<double>(factor);
    }
    return result;
  }
};

// Whether there is something to compute, of sizes for which kernels here have been made.
bool is_good(const Convolution& convolution);

// Whether this target has a kernel for it; and one that takes less time than oneDNN's with so many intra-op threads.
// That it has the same bits remains to be seen.
bool can_convolve(const Convolution& convolution);
bool is_quicker_here(const Convolution& convolution, int num_threads);

// How many floats `memory` of convolve() must have.
int64_t floats_to_convolve(const Convolution& convolution);

// In parallel if there is enough to do: the bits do not depend on it. `memory` may be anything, and is written.
// Computes nothing, and returns false, if filters have infinities or NaN, and images padding: its zeros are multiplied,
// too.
bool convolve(const Convolution& convolution, float* memory);

} // namespace lazyplug::kernels
