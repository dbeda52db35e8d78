#include "kernels/random_fill.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

bool can_fill(RandomFill::Kind kind, c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return kind != RandomFill::Kind::kIntegers;
    case c10::ScalarType::Bool:
      return kind == RandomFill::Kind::kBernoulli;
    case c10::ScalarType::Long:
      return kind == RandomFill::Kind::kIntegers;
    default:
      return false;
  }
}

void fill(const RandomFill& fill, c10::ScalarType dtype, int64_t n, void* out) {
  const auto run = dtype == c10::ScalarType::Bool   ? loops<float>().fill_random_bool
                   : dtype == c10::ScalarType::Long ? loops<float>().fill_random_long
                                                    : loops<float>().fill_random;
  const int64_t block_bytes = kRandomBlock * static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t num_whole = n / kRandomBlock;
  // A number takes about as long as a simple function of one.
  constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kRandomBlock;
  const auto at_block = [&](int64_t block) { return static_cast<char*>(out) + block * block_bytes; };
  parallel_for(num_whole, kGrain, [&](int64_t begin, int64_t end) { run(fill, begin, end, at_block(begin)); });
  if (const int64_t rest = n % kRandomBlock) {
    alignas(64) char block[kRandomBlock * sizeof(int64_t)];
    run(fill, num_whole, num_whole + 1, block);
    std::memcpy(at_block(num_whole), block, rest * block_bytes / kRandomBlock);
  }
}

} // namespace lazyplug::kernels
