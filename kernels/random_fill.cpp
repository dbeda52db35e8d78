#include "kernels/random_fill.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

bool can_fill(RandomFill::Kind kind, c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || (dtype == c10::ScalarType::Bool && kind == RandomFill::Kind::kBernoulli);
}

void fill(const RandomFill& fill, c10::ScalarType dtype, int64_t n, void* out) {
  const bool is_bool = dtype == c10::ScalarType::Bool;
  const auto run = is_bool ? loops<float>().fill_random_bool : loops<float>().fill_random;
  const int64_t block_bytes = kRandomBlock * static_cast<int64_t>(is_bool ? sizeof(bool) : sizeof(float));
  const int64_t num_whole = n / kRandomBlock;
  // A number takes about as long as a simple function of one.
  constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kRandomBlock;
  const auto at_block = [&](int64_t block) { return static_cast<char*>(out) + block * block_bytes; };
  parallel_for(num_whole, kGrain, [&](int64_t begin, int64_t end) { run(fill, begin, end, at_block(begin)); });
  if (const int64_t rest = n % kRandomBlock) {
    alignas(64) char block[kRandomBlock * sizeof(float)];
    run(fill, num_whole, num_whole + 1, block);
    std::memcpy(at_block(num_whole), block, rest * block_bytes / kRandomBlock);
  }
}

} // namespace lazyplug::kernels
