#include "common/small_set.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(SmallSetTest, HoldsEachValueOnceHoweverManyThereAre) {
  SmallSet<int> set;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(set.contains(i)) << i;
    EXPECT_TRUE(set.insert(i)) << i;
    for (int j = 0; j <= i; ++j) {
      EXPECT_TRUE(set.contains(j)) << j << " of " << i;
      EXPECT_FALSE(set.insert(j)) << j << " of " << i;
    }
  }
}

} // namespace
} // namespace lazyplug
