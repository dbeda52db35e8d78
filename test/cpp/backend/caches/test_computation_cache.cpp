#include "backend/caches/computation_cache.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(ComputationCacheTest, HashKnowsRootsAndTheirOrder) {
  Trace trace;
  const Value leaf = trace.add_device_data(at::Tensor(), floats({2}));
  const Value first = add_add(trace, {leaf}, {leaf}, floats({2}), 1);
  const Value second = add_mul(trace, {first}, {leaf}, floats({2}));
  const std::vector<Hash128> hashes = {
      graph_hash(trace, {}),
      graph_hash(trace, first),
      graph_hash(trace, second),
      graph_hash(trace, {first, second}),
      graph_hash(trace, {second, first})};
  for (size_t i = 0; i < hashes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(hashes[i], hashes[j]) << i << " and " << j;
    }
  }
}

} // namespace
} // namespace lazyplug
