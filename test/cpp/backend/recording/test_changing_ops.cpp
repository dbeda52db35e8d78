#include "backend/recording/changing_ops.h"

#include <torch/library.h>

#include "backend/inference/read_call.h"
#include "backend/ops/op_registry.h"
#include "common/running_op.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class ChangingOpsTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp(); // waits for everything
    y = at::ones({2}, on_lazy()) + 1;
  }

  at::Tensor y;
};

TEST_F(ChangingOpsTest, WhatIsRecordedRunsBeforeAnOpChanges) {
  EXPECT_EQ(state_of(y), State::kPending);
  finish_calls_of({"aten::add.Tensor"});
  EXPECT_NE(state_of(y), State::kPending);
}

TEST_F(ChangingOpsTest, UnknownOpsAreOfNoConcern) {
  finish_calls_of({"mine::unknown", "mine::unknown.out", "no name"});
  note_new_kernels({"mine::unknown"});
  EXPECT_EQ(state_of(y), State::kPending);
}

TEST_F(ChangingOpsTest, WhatIsRecordedRunsBeforeASettingChanges) {
  finish_before_setting();
  EXPECT_NE(state_of(y), State::kPending);
}

TEST_F(ChangingOpsTest, AThreadThatRunsAnOpDoesNotWaitForItself) {
  const RunningOp running("aten::add");
  finish_calls_of({"aten::add.Tensor"});
  EXPECT_EQ(state_of(y), State::kPending);
}

TEST_F(ChangingOpsTest, NewKernelsAreAskedAnew) {
  const OpInfo& op = op_info("aten::hypot", "");
  const c10::Stack stack = {y, y};
  const Call before = read_call(op, stack);
  note_new_kernels({"aten::hypot"});
  const Call after = read_call(op, stack);
  EXPECT_NE(before.key, after.key);
  EXPECT_EQ(before.identity, after.identity) << "the graph is the same";
  EXPECT_NE(before.kernel_version, after.kernel_version);
}

} // namespace
} // namespace lazyplug
