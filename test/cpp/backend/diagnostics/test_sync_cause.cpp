#include "backend/diagnostics/sync_cause.h"

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

} // namespace
} // namespace lazyplug
