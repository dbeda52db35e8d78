#include "device/run_set.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lazyplug {
namespace {

TEST(RunSet, TakesTheSmallestThatFits) {
  RunSet set;
  set.insert({0, 10});
  set.insert({20, 4});
  set.insert({30, 6});
  EXPECT_EQ(set.take(4)->first, 20);
  EXPECT_EQ(set.take(5)->first, 30);
  EXPECT_EQ(set.take(1)->first, 35);
  EXPECT_EQ(set.total(), 10);
}

TEST(RunSet, HasNothingLargeEnough) {
  RunSet set;
  set.insert({0, 3});
  set.insert({4, 3});
  EXPECT_FALSE(set.take(4));
  EXPECT_EQ(set.total(), 6);
}

TEST(RunSet, NeighboursMelt) {
  RunSet set;
  set.insert({0, 2});
  set.insert({4, 2});
  set.insert({2, 2});
  EXPECT_EQ(set.runs().size(), 1);
  EXPECT_EQ(set.take(6)->count, 6);
  EXPECT_EQ(set.total(), 0);
}

TEST(RunSet, ClearForgetsEverything) {
  RunSet set;
  set.insert({0, 2});
  set.clear();
  EXPECT_EQ(set.total(), 0);
  EXPECT_FALSE(set.take(1));
}

// Whatever is taken and returned in any order, nothing is lost or handed out twice.
TEST(RunSet, RandomUse) {
  constexpr size_t kSize = 200;
  std::mt19937 random(1);
  RunSet set;
  set.insert({0, kSize});
  std::vector<lazyplug::Run> taken;
  std::vector<bool> used(kSize);
  for (int i = 0; i < 5000; ++i) {
    if (const auto run = random() % 2 ? set.take(random() % 9 + 1) : std::nullopt) {
      for (size_t j = 0; j < run->count; ++j) {
        ASSERT_FALSE(used[run->first + j]);
        used[run->first + j] = true;
      }
      taken.push_back(*run);
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      std::fill_n(used.begin() + static_cast<ptrdiff_t>(taken.back().first), taken.back().count, false);
      set.insert(taken.back());
      taken.pop_back();
    }
  }
  for (const lazyplug::Run& run : taken) {
    set.insert(run);
  }
  EXPECT_EQ(set.total(), kSize);
  EXPECT_EQ(set.runs().size(), 1);
}

} // namespace
} // namespace lazyplug
