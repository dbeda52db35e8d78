#include "backend/diagnostics/sync_cause.h"

#include "backend/diagnostics/journal.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class SyncCauseTest : public BackendTest {};

TEST_F(SyncCauseTest, TheOutermostCauseCounts) {
  {
    const SyncCause outer("outer");
    {
      const SyncCause inner("inner");
      note_cut(cut_here(), 3, 1, 8);
    }
    note_cut(cut_here(), 3, 1, 8);
  }
  note_cut(cut_here(), 3, 1, 8);
  EXPECT_EQ(count("Sync/outer"), 2);
  EXPECT_EQ(count("Sync/inner"), 0);
  EXPECT_EQ(count("Sync/memory access"), 1);
  EXPECT_EQ(count("TraceCut"), 3);
}

TEST_F(SyncCauseTest, TheJournalKnowsHowLongAScopeLasted) {
  const ScopedFlag<bool> debug(config().debug, true);
  clear_journal();
  {
    const SyncCause outer("outer");
    const SyncCause inner("inner");
    Cut cut = cut_here();
    cut.trace = 5;
    note_cut(cut, 3, 1, 8, journal_clock() - 1000);
  }
  const auto entries = journal();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].kind, JournalKind::kSync);
  EXPECT_GE(entries[0].duration_ns, 1000);
  EXPECT_EQ(entries[1].kind, JournalKind::kWait);
  EXPECT_EQ(entries[1].cause, "outer");
  EXPECT_EQ(entries[1].trace, 5);
  EXPECT_LE(entries[1].start_ns, entries[0].start_ns + entries[0].duration_ns);
  clear_journal();
}

TEST_F(SyncCauseTest, EveryCutTraceHasOne) {
  const at::Tensor x = to_lazy(iota({2, 3}));
  (x + x).cpu();
  (x + x).sum().item();
  (x + x).mutable_data_ptr();
  EXPECT_EQ(count("Sync/copy to CPU"), 1);
  EXPECT_EQ(count("Sync/item"), 1);
  EXPECT_EQ(count("Sync/memory access"), 1);
  EXPECT_EQ(count("TraceCut"), 3);
}

} // namespace
} // namespace lazyplug
