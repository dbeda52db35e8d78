// How kernels/convolution.cpp and kernels/convolution_loops.h take a convolution apart.
#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/convolution.h"
#include "kernels/lanes.h"

namespace lazyplug::kernels {

// What a thread copies, for itself.
constexpr int64_t kMostFloats = int64_t{1} << 24;

// What one thread computes of it.
struct ConvolutionBlock {
  int64_t first_image;
  int64_t end_image;
  int64_t first_tile; // of output channels
  int64_t end_tile;
};

// Memory has the packed filters, then for each thread some channels of some images with their padding.
struct ConvolutionPlan {
  static constexpr int64_t kMostInner = 1024; // products that are added up at a time
  // Of small images there are several in one go, so that few vectors of windows are not full.
  static constexpr int64_t kLeastWindows = 256;
  // Output channels of a tile, which is two vectors wide, if vectors have so many lanes.
  static constexpr int64_t tile_rows(int64_t lanes) {
    return lanes == kLanesOfAvx512 ? 12 : 6;
  }

  ConvolutionPlan(const Convolution& convolution, int64_t lanes)
      : ConvolutionPlan(convolution, lanes, convolution.channels_at_once()) {}
  ConvolutionPlan(const Convolution& convolution, int64_t lanes, int64_t most_channels)
      : convolution(convolution),
        lanes(lanes),
        num_tiles((convolution.out_channels + tile_rows(lanes) - 1) / tile_rows(lanes)),
        most_channels(most_channels),
        images_at_once(std::clamp<int64_t>(kLeastWindows / convolution.out_plane(), 1, convolution.num_images)),
        pieces_of_vector(
            convolution.columns.out_size <= lanes / 4   ? 4
            : convolution.columns.out_size <= lanes / 2 ? 2
                                                        : 1),
        pieces_of_row((convolution.columns.out_size + lanes - 1) / lanes),
        rows_read(std::min(convolution.rows.in_size, padded_size(convolution.rows) - convolution.rows.padding)),
        part_of_row(
            (std::max(padded_size(convolution.columns), convolution.columns.in_size + 2 * convolution.columns.padding) +
             convolution.columns.stride - 1) /
            convolution.columns.stride),
        padded_row(convolution.columns.stride * part_of_row),
        padded_plane(padded_size(convolution.rows) * padded_row) {}

  // How much of an axis windows cover.
  static int64_t padded_size(const Pool::Axis& axis) {
    return (axis.out_size - 1) * axis.stride + (axis.window - 1) * axis.step + 1;
  }
  // From a window's first element to another one, row by row.
  int64_t place_of(int64_t element) const {
    const auto& [rows, columns] = std::tie(convolution.rows, convolution.columns);
    const int64_t below = element / columns.window * rows.step;
    const int64_t beside = element % columns.window * columns.step;
    return below * padded_row + beside % columns.stride * part_of_row + beside / columns.stride;
  }
  // The output channels of a tile; all tiles have about as many.
  int64_t tile_begin(int64_t tile) const {
    return convolution.out_channels * tile / num_tiles;
  }
  // When a product is added up, of so many channels at once.
  int64_t place_in_sum(int64_t element, int64_t channel, int64_t channels) const {
    switch (convolution.order) {
      case Convolution::Order::kBlocks:
        return element * channels + channel;
      case Convolution::Order::kChain:
        return channel * convolution.filter_size() + element;
      case Convolution::Order::kRunning: {
        const int64_t in_block = channel % Convolution::kRunningBlock;
        const int64_t first = channel - in_block;
        const int64_t block = std::min(channels - first, Convolution::kRunningBlock);
        return first * convolution.filter_size() + element * block + in_block;
      }
    }
    return 0;
  }
  // How many channels the block has that begins with this one.
  int64_t channels_from(int64_t first) const {
    return std::min(most_channels, convolution.in_channels - first);
  }
  int64_t packed_begin(int64_t tile, int64_t first_channel) const {
    const int64_t of_channel = convolution.filter_size() * lanes;
    return (first_channel * num_tiles + tile * channels_from(first_channel)) * of_channel;
  }
  int64_t packed_floats() const {
    return num_tiles * convolution.in_channels * convolution.filter_size() * lanes;
  }
  // A vector may be read where there are fewer elements.
  int64_t padded_floats() const {
    return (images_at_once * most_channels * padded_plane + 2 * lanes - 1) / lanes * lanes;
  }

  const Convolution& convolution;
  const int64_t lanes; // of the target's vectors
  const int64_t num_tiles;
  const int64_t most_channels; // of a block
  const int64_t images_at_once;
  const int64_t pieces_of_vector; // windows of so many rows share a vector
  const int64_t pieces_of_row;    // of the result
  const int64_t rows_read;        // of an image
  const int64_t part_of_row;      // of a padded row, which has as many parts as the stride of windows
  const int64_t padded_row;
  const int64_t padded_plane;
};

} // namespace lazyplug::kernels
