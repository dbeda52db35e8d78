#include "common/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace lazyplug {
namespace {

std::vector<uint64_t> cuts(const char* text, uint64_t ops) {
  std::vector<uint64_t> cuts;
  for (uint64_t op = 1; op <= ops; ++op) {
    if (Schedule::parse(text)->cuts_after(op)) {
      cuts.push_back(op);
    }
  }
  return cuts;
}

bool is_ever_late(const char* text) {
  for (uint64_t op = 1; op <= 100; ++op) {
    if (Schedule::parse(text)->delay(op).count() != 0) {
      return true;
    }
  }
  return false;
}

TEST(Schedule, OnlyWhatIsOneIsParsed) {
  for (const char* text : {"", "never", "every:1", "every:64", "random:0", "random:18446744073709551615"}) {
    ASSERT_TRUE(Schedule::parse(text)) << text;
    EXPECT_EQ(Schedule::parse(text)->is_set(), *text != '\0');
  }
  for (const char* text :
       {"always", "never:", "every", "every:", "every:0", "every:-1", "every:2x", "random:", "random:x"}) {
    EXPECT_FALSE(Schedule::parse(text)) << text;
  }
}

TEST(Schedule, EveryNthOp) {
  EXPECT_EQ(cuts("every:3", 10), (std::vector<uint64_t>{3, 6, 9}));
  EXPECT_EQ(cuts("every:1", 3), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(is_ever_late("every:3"));
}

TEST(Schedule, SeedsCutElsewhereAndRepeatThemselves) {
  for (const char* text : {"random:1", "random:2", "random:3"}) {
    EXPECT_EQ(cuts(text, 1000), cuts(text, 1000));
    EXPECT_GT(cuts(text, 1000).size(), 10);
    EXPECT_LT(cuts(text, 1000).size(), 700);
    EXPECT_TRUE(is_ever_late(text));
  }
  EXPECT_NE(cuts("random:1", 1000), cuts("random:2", 1000));
}

TEST(Schedule, WithoutOneNothingIsCutOrLate) {
  for (const char* text : {"", "never"}) {
    EXPECT_TRUE(cuts(text, 1000).empty());
    EXPECT_FALSE(is_ever_late(text));
  }
}

} // namespace
} // namespace lazyplug
