#include "device/size_class.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(SizeClass, IsTheSmallestThatFits) {
  for (size_t nbytes = 1; nbytes < (1 << 20); nbytes += 37) {
    const SizeClass size_class = size_class_of(nbytes);
    EXPECT_GE(class_bytes(size_class), nbytes);
    if (size_class > 0) {
      EXPECT_LT(class_bytes(size_class - 1), nbytes);
    }
  }
}

TEST(SizeClass, NothingNeedsTheSmallestBlock) {
  EXPECT_EQ(size_class_of(0), 0);
  EXPECT_EQ(class_bytes(0), kBlockAlignment);
}

TEST(SizeClass, BlocksAreTheirOwnClass) {
  // The last one is for sizes that nobody has the addresses for.
  for (size_t size_class = 0; size_class + 1 < kNumSizeClasses; ++size_class) {
    const size_t nbytes = class_bytes(static_cast<SizeClass>(size_class));
    EXPECT_EQ(size_class_of(nbytes), size_class);
    EXPECT_EQ(nbytes % kBlockAlignment, 0);
  }
}

TEST(SizeClass, WastesAtMostAnEighth) {
  for (size_t size_class = kLinearClasses; size_class + 2 < kNumSizeClasses; ++size_class) {
    const auto step = static_cast<SizeClass>(size_class);
    const size_t waste = class_bytes(step + 1) - class_bytes(step);
    EXPECT_LE(waste, class_bytes(step) / 8);
  }
}

TEST(SizeClass, CoversEverySize) {
  EXPECT_LT(size_class_of(size_t{1} << 62), kNumSizeClasses);
}

} // namespace
} // namespace lazyplug
