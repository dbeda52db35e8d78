#include "kernels/filter_gradient.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "kernels/filter_gradient_plan.h"
#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

constexpr double kGradientGrain = 0x1p17; // multiplications of a thread

FilterGradientPlan gradient_plan(const FilterGradient& gradient) {
  return {gradient, loops<float>().num_lanes};
}

// What threads share: the parts, if there are not more of these than of threads, and tiles.
struct Blocks {
  int64_t of_parts;
  int64_t of_tiles;

  explicit Blocks(const FilterGradientPlan& plan) {
    const Convolution& convolution = plan.gradient.convolution;
    const int64_t wanted = threads_for(convolution.num_multiplications() / kGradientGrain);
    of_parts = plan.gradient.num_parts <= wanted ? plan.gradient.num_parts : 1;
    of_tiles = std::min(wanted / of_parts, plan.num_tiles());
  }
  int64_t count() const {
    return of_parts * of_tiles;
  }
};

int64_t num_filter_floats(const FilterGradientPlan& plan) {
  return plan.filter_elements() * plan.gradient.convolution.out_channels;
}
// Of all but the first block of parts.
int64_t result_floats(const FilterGradientPlan& plan) {
  return num_filter_floats(plan) + plan.gradient.convolution.out_channels;
}

} // namespace

bool is_quicker_here(const FilterGradient& gradient) {
  const Convolution& convolution = gradient.convolution;
  constexpr double kMostOfSingle = 0x1p20; // of filters of one element oneDNN computes more as quickly
  return loops<float>().sum_up_filters && is_good(convolution) &&
         (convolution.filter_size() > 1 || convolution.num_multiplications() <= kMostOfSingle) &&
         gradient.num_parts > 0 && gradient.num_parts <= convolution.num_images &&
         gradient_plan(gradient).block_floats() <= kMostFloats;
}

int64_t floats_to_compute(const FilterGradient& gradient) {
  const FilterGradientPlan plan = gradient_plan(gradient);
  const Blocks blocks(plan);
  return blocks.count() * plan.block_floats() + (blocks.of_parts - 1) * result_floats(plan);
}

bool compute(const FilterGradient& gradient, float* memory) {
  const FilterGradientPlan plan = gradient_plan(gradient);
  const Blocks blocks(plan);
  const int64_t num_channels = gradient.convolution.out_channels;
  float* results = memory + blocks.count() * plan.block_floats();
  const auto of_filters = [&](int64_t block) {
    return block == 0 ? gradient.of_filters : results + (block - 1) * result_floats(plan);
  };
  const auto of_bias = [&](int64_t block) {
    return block == 0 ? gradient.of_bias : of_filters(block) + num_filter_floats(plan);
  };
  std::atomic<bool> are_finite = true;
  parallel_for(blocks.count(), /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t parts = i / blocks.of_tiles;
      const int64_t tiles = i % blocks.of_tiles;
      const bool is_finite = loops<float>().sum_up_filters(
          plan,
          {begin_of_part(gradient.num_parts, parts, blocks.of_parts),
           begin_of_part(gradient.num_parts, parts + 1, blocks.of_parts),
           begin_of_part(plan.num_tiles(), tiles, blocks.of_tiles),
           begin_of_part(plan.num_tiles(), tiles + 1, blocks.of_tiles),
           of_filters(parts),
           of_bias(parts),
           memory + i * plan.block_floats()});
      if (!is_finite) {
        are_finite = false;
      }
    }
  });
  if (!are_finite && gradient.convolution.has_padding()) {
    return false;
  }
  for (int64_t block = 1; block < blocks.of_parts; ++block) {
    const auto add = [](int64_t n, const float* from, float* to) {
      std::transform(from, from + n, to, to, [](float more, float sum) { return sum + more; });
    };
    add(num_filter_floats(plan), of_filters(block), gradient.of_filters);
    if (gradient.of_bias) {
      add(num_channels, of_bias(block), gradient.of_bias);
    }
  }
  return true;
}

} // namespace lazyplug::kernels
