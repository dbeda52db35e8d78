// How kernels/filter_gradient.cpp and kernels/filter_gradient_loops.h take gradients of filters apart.
#pragma once

#include "kernels/convolution_plan.h"
#include "kernels/filter_gradient.h"
#include "kernels/lanes.h"

namespace lazyplug::kernels {

// What one thread computes, of some parts of the images. Tiles are of some elements of filters, and of output channels
// that fill one to four vectors.
struct FilterGradientBlock {
  int64_t first_part;
  int64_t end_part;
  int64_t first_tile;
  int64_t end_tile;
  float* of_filters; // of these parts, all added up
  float* of_bias;    // written with the first tile
  float* memory;     // as much as FilterGradientPlan says
};

// Memory has some images with their padding, their gradients, channels side by side, and sums of bias and tiles.
struct FilterGradientPlan {
  // Of images and gradients, so that they stay in the L2 cache while tiles go by.
  static constexpr int64_t kFloatsAtOnce = int64_t{96} << 10;

  FilterGradientPlan(const FilterGradient& gradient, int64_t lanes)
      : gradient(gradient),
        lanes(lanes),
        padding(gradient.convolution, lanes, gradient.convolution.in_channels),
        vectors_of_tile(
            gradient.convolution.out_channels > 2 * lanes && lanes == kLanesOfAvx512 ? 4
            : gradient.convolution.out_channels > lanes                              ? 2
                                                                                     : 1),
        padded_channels(
            (gradient.convolution.out_channels + channels_of_tile() - 1) / channels_of_tile() * channels_of_tile()),
        tiles_of_elements((filter_elements() + most_elements() - 1) / most_elements()),
        images_at_once(
            std::clamp<int64_t>(
                kFloatsAtOnce / (image_floats() + gradient_floats()),
                1,
                gradient.convolution.num_images)) {}

  // Of an output channel.
  int64_t filter_elements() const {
    return gradient.convolution.in_channels * gradient.convolution.filter_size();
  }
  // Of a tile, whose sums are as many vectors as those of a convolution's tile, or half of these.
  int64_t most_elements() const {
    return std::min<int64_t>(2 * ConvolutionPlan::tile_rows(lanes) / vectors_of_tile, 12);
  }
  int64_t channels_of_tile() const {
    return vectors_of_tile * lanes;
  }
  int64_t sums_of_tile() const {
    return most_elements() * channels_of_tile();
  }
  int64_t num_tiles() const {
    return tiles_of_elements * (padded_channels / channels_of_tile());
  }
  int64_t first_channel(int64_t tile) const {
    return tile / tiles_of_elements * channels_of_tile();
  }
  int64_t first_element(int64_t tile) const {
    return filter_elements() * (tile % tiles_of_elements) / tiles_of_elements;
  }
  int64_t num_elements(int64_t tile) const {
    return filter_elements() * (tile % tiles_of_elements + 1) / tiles_of_elements - first_element(tile);
  }
  // The first image of a part: the first parts have one more where images are left over.
  int64_t part_begin(int64_t part) const {
    const int64_t images = gradient.convolution.num_images;
    const int64_t more = images % gradient.num_parts;
    return images / gradient.num_parts * part + (part < more ? part : more);
  }
  // Where the first window of an image has what is multiplied.
  int64_t place_of(int64_t element) const {
    const int64_t size = gradient.convolution.filter_size();
    return element / size * padding.padded_plane + padding.place_of(element % size);
  }
  int64_t image_floats() const {
    return gradient.convolution.in_channels * padding.padded_plane;
  }
  int64_t gradient_floats() const {
    return gradient.convolution.out_plane() * padded_channels;
  }
  int64_t padded_floats() const {
    return (images_at_once * image_floats() + lanes - 1) / lanes * lanes;
  }
  int64_t transposed_floats() const {
    return images_at_once * gradient_floats();
  }
  int64_t block_floats() const {
    return padded_floats() + transposed_floats() + padded_channels + num_tiles() * sums_of_tile();
  }

  const FilterGradient& gradient;
  const int64_t lanes; // of the target's vectors
  const ConvolutionPlan padding;
  const int64_t vectors_of_tile;   // of output channels
  const int64_t padded_channels;   // output channels of whole tiles
  const int64_t tiles_of_elements; // all have about as many
  const int64_t images_at_once;
};

} // namespace lazyplug::kernels
