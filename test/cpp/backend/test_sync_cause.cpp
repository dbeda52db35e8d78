#include "backend/sync_cause.h"

#include "backend/journal.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class SyncCauseTest : public BackendTest {};

TEST_F(SyncCauseTest, TheOutermostCauseCounts) {
  {
    const SyncCause outer("outer");
    {
      const SyncCause inner("inner");
      note_cut(3, 1, 8);
    }
    note_cut(3, 1, 8);
  }
  note_cut(3, 1, 8);
  EXPECT_EQ(count("Sync/outer"), 2);
  EXPECT_EQ(count("Sync/inner"), 0);
  EXPECT_EQ(count("Sync/memory access"), 1);
  EXPECT_EQ(count("TraceCut"), 3);
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

TEST_F(SyncCauseTest, TheJournalIsKeptWhenDebuggingAndIsBounded) {
  clear_journal();
  note_cut(3, 1, 8);
  EXPECT_TRUE(journal().empty());
  const ScopedFlag<bool> debug(config().debug, true);
  for (int i = 0; i < 10010; ++i) {
    add_to_journal(JournalKind::kRun, std::to_string(i), "", "model.py:3", 5);
  }
  const auto entries = journal();
  EXPECT_EQ(entries.size(), 10000);
  EXPECT_EQ(entries.front().cause, "10");
  EXPECT_EQ(entries.front().location, "model.py:3");
  EXPECT_EQ(entries.front().duration_ns, 5);
  EXPECT_STREQ(to_string(entries.front().kind), "run");
  clear_journal();
}

} // namespace
} // namespace lazyplug
