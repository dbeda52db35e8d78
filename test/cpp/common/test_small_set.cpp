#include "common/small_set.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(SmallSetTest, HoldsEachValueOnceHoweverManyThereAre) {
  SmallSet<int> set;
  for (int i = -7; i < 1500; i += 3) {
    EXPECT_FALSE(set.contains(i)) << i;
    EXPECT_TRUE(set.insert(i)) << i;
    for (int j = -7; j <= i; j += 3) {
      EXPECT_TRUE(set.contains(j)) << j << " of " << i;
      EXPECT_FALSE(set.insert(j)) << j << " of " << i;
    }
  }
}

// Zero is what free places of its table hold.
TEST(SmallSetTest, MayHoldZero) {
  for (const int num_before : {0, 5, 100}) {
    SmallSet<int> set;
    for (int i = 1; i <= num_before; ++i) {
      set.insert(i);
    }
    EXPECT_FALSE(set.contains(0));
    EXPECT_TRUE(set.insert(0));
    for (int i = 1001; i < 1100; ++i) {
      EXPECT_TRUE(set.contains(0));
      EXPECT_FALSE(set.insert(0));
      set.insert(i);
    }
  }
}

} // namespace
} // namespace lazyplug
