#include "backend/diagnostics/sync_debug.h"

#include "backend/diagnostics/python_hooks.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class SyncDebugTest : public BackendTest {
 protected:
  void TearDown() override {
    set_python_hooks({});
  }

  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
  Warnings warnings_;
};

TEST_F(SyncDebugTest, NothingIsSaidByDefault) {
  note_sync("a test");
  (x + x).cpu();
  EXPECT_TRUE(warnings_.messages.empty());
}

TEST_F(SyncDebugTest, WarnsEachTime) {
  const ScopedFlag<std::string> warn(config().sync_debug, "warn");
  note_sync("a test");
  note_sync("a test");
  EXPECT_EQ(warnings_.messages, std::vector<std::string>(2, "called a synchronizing LAZY operation: a test"));
}

TEST_F(SyncDebugTest, NamesTheLine) {
  set_python_hooks({.find_location = [] { return "model.py:12"; }});
  const ScopedFlag<std::string> warn(config().sync_debug, "warn");
  note_sync("a test");
  ASSERT_EQ(warnings_.messages.size(), 1);
  EXPECT_TRUE(contains(warnings_.messages[0], "a test (at model.py:12)"));
}

TEST_F(SyncDebugTest, EveryReadIsOne) {
  const ScopedFlag<std::string> warn(config().sync_debug, "warn");
  const at::Tensor y = x + x;
  y.sum().item();
  y.cpu();
  test_ops::no_meta(y);
  const std::vector<std::string> causes{
      "reading a value",
      "a copy to the CPU",
      "lazyplug_backend_test::no_meta on the CPU"};
  ASSERT_EQ(warnings_.messages.size(), causes.size());
  for (size_t i = 0; i < causes.size(); ++i) {
    EXPECT_TRUE(contains(warnings_.messages[i], causes[i])) << warnings_.messages[i];
  }
}

TEST_F(SyncDebugTest, WaitingOnPurposeIsNone) {
  const ScopedFlag<std::string> refuse(config().sync_debug, "error");
  const at::Tensor y = x + x;
  context_.synchronize();
  EXPECT_EQ(state_of(y + 1), State::kPending);
  EXPECT_TRUE(warnings_.messages.empty());
}

TEST_F(SyncDebugTest, RefusedReadsDoNothing) {
  const at::Tensor y = x + x;
  {
    const ScopedFlag<std::string> refuse(config().sync_debug, "error");
    EXPECT_EQ(error_of([&] { y.cpu(); }), "called a synchronizing LAZY operation: a copy to the CPU");
    EXPECT_EQ(state_of(y), State::kPending);
    EXPECT_EQ(count("TraceCut"), 0);
  }
  expect_equal(y, cpu * 2);
  EXPECT_TRUE(warnings_.messages.empty());
}

} // namespace
} // namespace lazyplug
