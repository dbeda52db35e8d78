#include "backend/diagnostics/journal.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class JournalTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    clear_journal();
  }
  void TearDown() override {
    clear_journal();
  }
};

TEST_F(JournalTest, IsKeptOnlyWhenDebugging) {
  add_to_journal(JournalKind::kSync, "item", "", nullptr);
  EXPECT_TRUE(journal().empty());
  const ScopedFlag<bool> debug(config().debug, true);
  add_to_journal(JournalKind::kSync, "item", "", nullptr);
  EXPECT_EQ(journal().size(), 1);
  clear_journal();
  EXPECT_TRUE(journal().empty());
}

TEST_F(JournalTest, EntriesHoldWhatTheyWereGiven) {
  const ScopedFlag<bool> debug(config().debug, true);
  add_to_journal(JournalKind::kFallback, "aten::nonzero", "no Meta kernel", "model.py:3", 5, 48);
  add_to_journal(JournalKind::kCompile, "shape", "", nullptr);
  const auto entries = journal();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].kind, JournalKind::kFallback);
  EXPECT_EQ(entries[0].cause, "aten::nonzero");
  EXPECT_EQ(entries[0].detail, "no Meta kernel");
  EXPECT_EQ(entries[0].location, "model.py:3");
  EXPECT_EQ(entries[0].duration_ns, 5);
  EXPECT_EQ(entries[0].bytes, 48);
  EXPECT_EQ(entries[1].kind, JournalKind::kCompile);
  EXPECT_EQ(entries[1].location, "") << "nobody knows the line";
}

TEST_F(JournalTest, EventsEndWhenTheyAreAdded) {
  const ScopedFlag<bool> debug(config().debug, true);
  constexpr int64_t kDuration = 1'000'000'000;
  const int64_t before = journal_clock();
  add_to_journal(JournalKind::kRun, "", "", nullptr, kDuration);
  const int64_t after = journal_clock();
  const int64_t start = journal().at(0).start_ns;
  EXPECT_GE(start, before - kDuration);
  EXPECT_LE(start, after - kDuration);
}

TEST_F(JournalTest, IsBoundedAndForgetsTheOldest) {
  const ScopedFlag<bool> debug(config().debug, true);
  for (int i = 0; i < 10010; ++i) {
    add_to_journal(JournalKind::kRun, std::to_string(i), "", nullptr);
  }
  const auto entries = journal();
  EXPECT_EQ(entries.size(), 10000);
  EXPECT_EQ(entries.front().cause, "10");
  EXPECT_EQ(entries.back().cause, "10009");
}

TEST_F(JournalTest, KindsHaveNames) {
  EXPECT_STREQ(to_string(JournalKind::kSync), "sync");
  EXPECT_STREQ(to_string(JournalKind::kFallback), "fallback");
  EXPECT_STREQ(to_string(JournalKind::kCompile), "compile");
  EXPECT_STREQ(to_string(JournalKind::kRun), "run");
}

} // namespace
} // namespace lazyplug
