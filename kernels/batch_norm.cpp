#include "kernels/batch_norm.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

bool has_batch_norm() {
  return loops<float>().find_moments;
}

void run(const BatchNorm& norm) {
  const int64_t of_channel = norm.num_images * norm.plane;
  const auto grain = [](int64_t elements) { return std::max<int64_t>(at::internal::GRAIN_SIZE / elements, 1); };
  const Loops<float>& loops = kernels::loops<float>();
  const int64_t at_once = loops.num_lanes; // channels
  parallel_for(
      (norm.num_channels + at_once - 1) / at_once,
      grain(at_once * of_channel),
      [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          loops.find_moments(norm, block * at_once, std::min((block + 1) * at_once, norm.num_channels));
        }
      });
  parallel_for(norm.num_images * norm.num_channels, grain(norm.plane), [&](int64_t begin, int64_t end) {
    loops.normalize_planes(norm, begin, end);
  });
}

} // namespace lazyplug::kernels
