#include "backend/diagnostics/journal.h"

#include <thread>

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
  add_to_journal({.kind = JournalKind::kSync, .cause = "item"});
  EXPECT_TRUE(journal().empty());
  const ScopedFlag<bool> debug(config().debug, true);
  add_to_journal({.kind = JournalKind::kSync, .cause = "item"});
  EXPECT_EQ(journal().size(), 1);
  clear_journal();
  EXPECT_TRUE(journal().empty());
}

TEST_F(JournalTest, EntriesHoldWhatTheyWereGiven) {
  const ScopedFlag<bool> debug(config().debug, true);
  add_to_journal(
      {.kind = JournalKind::kFallback,
       .cause = "aten::nonzero",
       .detail = "no Meta kernel",
       .location = "model.py:3",
       .duration_ns = 5,
       .bytes = 48,
       .trace = 7,
       .ops = {{"aten::add", "model.py:2", 0.5F}}});
  add_to_journal({.kind = JournalKind::kCompile, .cause = "shape"});
  const auto entries = journal();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].kind, JournalKind::kFallback);
  EXPECT_EQ(entries[0].cause, "aten::nonzero");
  EXPECT_EQ(entries[0].detail, "no Meta kernel");
  EXPECT_STREQ(entries[0].location, "model.py:3");
  EXPECT_EQ(entries[0].duration_ns, 5);
  EXPECT_EQ(entries[0].bytes, 48);
  EXPECT_EQ(entries[0].trace, 7);
  ASSERT_EQ(entries[0].ops.size(), 1);
  EXPECT_EQ(entries[0].ops[0].name, "aten::add");
  EXPECT_EQ(entries[1].kind, JournalKind::kCompile);
  EXPECT_EQ(entries[1].location, nullptr) << "nobody knows the line";
}

TEST_F(JournalTest, EventsEndWhenTheyAreAdded) {
  const ScopedFlag<bool> debug(config().debug, true);
  constexpr int64_t kDuration = 1'000'000'000;
  const int64_t before = journal_clock();
  add_to_journal({.kind = JournalKind::kRun, .duration_ns = kDuration});
  const int64_t after = journal_clock();
  const int64_t start = journal().at(0).start_ns;
  EXPECT_GE(start, before - kDuration);
  EXPECT_LE(start, after - kDuration);
}

TEST_F(JournalTest, IsBoundedAndForgetsTheOldest) {
  const ScopedFlag<bool> debug(config().debug, true);
  for (int i = 0; i < 10010; ++i) {
    add_to_journal({.kind = JournalKind::kRun, .cause = std::to_string(i)});
  }
  const auto entries = journal();
  EXPECT_EQ(entries.size(), 10000);
  EXPECT_EQ(entries.front().cause, "10");
  EXPECT_EQ(entries.back().cause, "10009");
}

TEST_F(JournalTest, OpsOfRunsAreBoundedToo) {
  const ScopedFlag<bool> debug(config().debug, true);
  for (int i = 0; i < 5; ++i) {
    add_to_journal({.kind = JournalKind::kRun, .cause = std::to_string(i), .ops = std::vector<JournalOp>(60000)});
  }
  EXPECT_EQ(journal().size(), 3);
  EXPECT_EQ(journal().front().cause, "2");
}

TEST_F(JournalTest, EntriesSayWhereTheyWereMade) {
  const ScopedFlag<bool> debug(config().debug, true);
  const at::Tensor x = to_lazy(at::ones({1000}));
  x.mutable_data_ptr();
  std::thread([] { add_to_journal({.kind = JournalKind::kStep}); }).join();
  add_to_journal({.kind = JournalKind::kStep});
  const auto entries = journal();
  ASSERT_GE(entries.size(), 2);
  EXPECT_NE(entries.back().thread, entries[entries.size() - 2].thread);
  EXPECT_GE(entries.back().allocated, 4000);
}

TEST_F(JournalTest, KindsHaveNames) {
  EXPECT_STREQ(to_string(JournalKind::kSync), "sync");
  EXPECT_STREQ(to_string(JournalKind::kFallback), "fallback");
  EXPECT_STREQ(to_string(JournalKind::kCompile), "compile");
  EXPECT_STREQ(to_string(JournalKind::kRun), "run");
  EXPECT_STREQ(to_string(JournalKind::kWait), "wait");
  EXPECT_STREQ(to_string(JournalKind::kStep), "step");
}

} // namespace
} // namespace lazyplug
