#include "kernels/norm_gradient.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

// As many blocks as keep some threads busy; each has sums of its own, which are added up at the end.
constexpr int64_t kRowsOfBlock = 64;
constexpr int64_t kMaxBlocks = 32;

} // namespace

void run(const NormGradient& norm) {
  const int64_t num_blocks = std::clamp<int64_t>(norm.num_rows / kRowsOfBlock, 1, kMaxBlocks);
  const int64_t n = norm.row_length;
  std::vector<float> sums(2 * num_blocks * n);
  const auto first_row = [&](int64_t block) { return begin_of_part(norm.num_rows, block, num_blocks); };
  // An element takes as long as a few of simpler functions.
  constexpr int64_t kGrain = at::internal::GRAIN_SIZE / 4;
  const int64_t elements_of_block = std::max<int64_t>(norm.num_rows / num_blocks * n, 1);
  parallel_for(num_blocks, (kGrain - 1) / elements_of_block + 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* of_block = sums.data() + 2 * block * n;
      loops<float>().norm_gradient(norm, first_row(block), first_row(block + 1), of_block, of_block + n);
    }
  });
  for (const auto& [result, place] : {std::pair(norm.of_weight, int64_t{0}), std::pair(norm.of_bias, n)}) {
    const float* of_block = sums.data() + place;
    for (int64_t block = 0; result && block < num_blocks; ++block, of_block += 2 * n) {
      for (int64_t i = 0; i < n; ++i) {
        result[i] = block == 0 ? of_block[i] : result[i] + of_block[i];
      }
    }
  }
}

} // namespace lazyplug::kernels
