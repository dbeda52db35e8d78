#include "lowering/execution/scramble.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <set>

namespace lazyplug {
namespace {

TEST(Scramble, HalfOfTheResultsLieOtherwiseInThreeWays) {
  const at::Tensor result = at::arange(24, at::kFloat).view({2, 3, 4});
  std::set<std::vector<int64_t>> ways;
  int changed = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const at::Tensor other = scramble(result, seed);
    EXPECT_TRUE(at::equal(other, result));
    changed += !other.is_same(result);
    auto way = other.strides().vec();
    way.push_back(other.storage_offset());
    ways.insert(way);
  }
  EXPECT_NEAR(changed, 500, 60);
  EXPECT_EQ(ways.size(), 4) << "as it was, reversed, with gaps, with an offset";
}

TEST(Scramble, IsRepeated) {
  const at::Tensor result = at::ones({2, 3});
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(scramble(result, seed).strides(), scramble(result, seed).strides());
  }
}

TEST(Scramble, KeepsBytesOfBooleans) {
  const at::Tensor result = at::full({4}, 3, at::kByte).view(at::kBool);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_TRUE(at::equal(scramble(result, seed).view(at::kByte), result.view(at::kByte)));
  }
}

TEST(Scramble, LeavesAloneWhatCannotLieOtherwise) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const at::Tensor expanded = at::ones({1}).expand({3});
    EXPECT_TRUE(scramble(expanded, seed).is_same(expanded)) << "elements share memory";
    const at::Tensor empty = at::empty({0, 3});
    EXPECT_TRUE(scramble(empty, seed).is_same(empty));
  }
}

} // namespace
} // namespace lazyplug
