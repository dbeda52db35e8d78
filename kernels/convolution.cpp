#include "kernels/convolution.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "kernels/convolution_plan.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

constexpr double kConvolutionGrain = 0x1p17; // multiplications of a thread
constexpr double kMost = 0x1p27;             // more take oneDNN long enough
constexpr int64_t kMostOfAxis = int64_t{1} << 24;

ConvolutionPlan convolution_plan(const Convolution& convolution) {
  return {convolution, loops<float>().num_lanes};
}

// What oneDNN needs besides: to choose a kernel, and to copy results into another layout. For filters of one element it
// has kernels that it chooses quickly.
double seconds_saved(const Convolution& convolution, int num_threads) {
  const double to_choose = convolution.filter_size() == 1 ? 0 : 40e-6;
  constexpr double kOfResult = 0.25e-9;
  const auto num_results =
      static_cast<double>(convolution.num_images * convolution.out_channels * convolution.out_plane());
  return to_choose + kOfResult * num_results / num_threads;
}

// Zen 4 computes 512 bits in two halves: what is multiplied takes twice as long there, and all else does not.
double seconds_of_multiplication(int64_t lanes) {
  if (lanes == kLanesOfAvx2) {
    return 1 / 45e9;
  }
#if defined(__x86_64__)
  static const bool is_halved = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amdfam19h") != 0;
  }();
#else
  constexpr bool is_halved = false;
#endif
  return is_halved ? 1 / 60e9 : 1 / 131e9;
}

// Its multiplications take less time, as its vectors are of channels: ours have lanes without windows.
double seconds_lost(const ConvolutionPlan& plan, int num_threads) {
  constexpr double kOurs = 1.17; // of the library's time
  const auto lanes = static_cast<double>(plan.pieces_of_row * plan.lanes / plan.pieces_of_vector);
  const double to_collect = plan.pieces_of_vector == 4 ? 0.85 : 1; // four loads for a vector
  const double used = static_cast<double>(plan.convolution.columns.out_size) / lanes * to_collect;
  const Convolution& convolution = plan.convolution;
  const double sums = (kOurs / used - 1) * seconds_of_multiplication(plan.lanes) * convolution.num_multiplications();
  // Filters of gradients are collected channel by channel.
  const double filters = convolution.is_gradient ? 0.25e-9 * static_cast<double>(plan.packed_floats()) : 0;
  return (sums + filters) / num_threads;
}

// As many as there are threads, or fewer: parts of the images, and of the output channels. Each thread reads all that
// it needs of either, so the larger of the two is split up first.
struct Parts {
  int64_t of_images;
  int64_t of_tiles;

  explicit Parts(const ConvolutionPlan& plan) {
    const Convolution& convolution = plan.convolution;
    const int64_t wanted = threads_for(convolution.num_multiplications() / kConvolutionGrain);
    const int64_t image_floats = convolution.num_images * convolution.in_channels * convolution.in_plane();
    if (plan.packed_floats() > image_floats) {
      of_tiles = std::min(wanted, plan.num_tiles);
      of_images = std::min(wanted / of_tiles, convolution.num_images);
    } else {
      of_images = std::min(wanted, convolution.num_images);
      of_tiles = std::min(wanted / of_images, plan.num_tiles);
    }
  }
  int64_t count() const {
    return of_images * of_tiles;
  }
};

} // namespace

bool is_good(const Convolution& convolution) {
  const auto is_good = [](const Pool::Axis& axis) {
    const auto is_size = [](int64_t size) { return size > 0 && size <= kMostOfAxis; };
    return is_size(axis.in_size) && is_size(axis.out_size) && is_size(axis.window) && is_size(axis.step) &&
           is_size(axis.stride) && axis.padding >= 0 && axis.padding <= kMostOfAxis;
  };
  return convolution.num_images > 0 && convolution.in_channels > 0 && convolution.out_channels > 0 &&
         is_good(convolution.rows) && is_good(convolution.columns) && convolution.num_multiplications() <= kMost;
}

bool can_convolve(const Convolution& convolution) {
  return loops<float>().convolve && is_good(convolution) &&
         convolution.channels_at_once() * convolution.filter_size() <= ConvolutionPlan::kMostInner &&
         convolution_plan(convolution).padded_floats() <= kMostFloats;
}

bool is_quicker_here(const Convolution& convolution, int num_threads) {
  if (!can_convolve(convolution)) {
    return false;
  }
  const ConvolutionPlan plan = convolution_plan(convolution);
  // With few products of a sum, what is done for each sum takes longer than these.
  const bool is_brief = plan.lanes == kLanesOfAvx2 && convolution.filter_size() == 1;
  return !is_brief && seconds_lost(plan, num_threads) < seconds_saved(convolution, num_threads);
}

int64_t floats_to_convolve(const Convolution& convolution) {
  const ConvolutionPlan plan = convolution_plan(convolution);
  return plan.packed_floats() + Parts(plan).count() * plan.padded_floats();
}

bool convolve(const Convolution& convolution, float* memory) {
  const ConvolutionPlan plan = convolution_plan(convolution);
  const Parts parts(plan);
  const Loops<float>& loops = kernels::loops<float>();
  std::atomic<bool> are_finite = true;
  parallel_for(parts.count(), /*grain=*/1, [&](int64_t begin, int64_t end) {
    const int64_t first_tile = begin_of_part(plan.num_tiles, begin, parts.count());
    const int64_t end_tile = begin_of_part(plan.num_tiles, end, parts.count());
    for (int64_t channel = 0; channel < convolution.in_channels; channel += plan.most_channels) {
      for (int64_t tile = first_tile; tile < end_tile; ++tile) {
        if (!loops.pack_filters(convolution, tile, channel, memory + plan.packed_begin(tile, channel))) {
          are_finite = false;
        }
      }
    }
  });
  if (!are_finite && convolution.has_padding()) {
    return false;
  }
  parallel_for(parts.count(), /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t images = part / parts.of_tiles;
      const int64_t tiles = part % parts.of_tiles;
      const ConvolutionBlock block{
          begin_of_part(convolution.num_images, images, parts.of_images),
          begin_of_part(convolution.num_images, images + 1, parts.of_images),
          begin_of_part(plan.num_tiles, tiles, parts.of_tiles),
          begin_of_part(plan.num_tiles, tiles + 1, parts.of_tiles)};
      loops.convolve(convolution, block, memory, memory + plan.packed_floats() + part * plan.padded_floats());
    }
  });
  return true;
}

} // namespace lazyplug::kernels
