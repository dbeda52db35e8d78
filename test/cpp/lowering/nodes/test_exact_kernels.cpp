#include "lowering/nodes/exact_kernels.h"

#include <ATen/ATen.h>

#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

const c10::Stack kWindows = {
    c10::IValue(std::vector<int64_t>{2}),
    c10::IValue(std::vector<int64_t>{2}),
    c10::IValue(std::vector<int64_t>{0}),
    true,
    true,
    c10::IValue()};

class ExactKernelsTest : public NodeTest {
 protected:
  ExactKernelsTest() : NodeTest(exact_kernel) {}
};

TEST_F(ExactKernelsTest, OthersHaveNone) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  c10::Stack stack{input};
  EXPECT_FALSE(run_exact_kernel(make_op("aten::relu"), stack));
  EXPECT_EQ(stack.size(), 1);
  EXPECT_FALSE(kernel_of("aten::relu", "", input, {}));
}

TEST_F(ExactKernelsTest, NodesAreComputedHereOrByPyTorch) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  expect_same("aten::avg_pool2d", "", input, kWindows);
  expect_same("aten::avg_pool2d", "", input.transpose(2, 3), kWindows);
}

TEST_F(ExactKernelsTest, CallsAtOnceLeaveTheRestOnTheStack) {
  const OpInfo& op = make_op("aten::avg_pool2d");
  for (const bool is_plain : {true, false}) {
    const at::Tensor input = at::randn({2, 3, 8, 8});
    c10::Stack stack{is_plain ? input : input.transpose(2, 3)};
    stack.insert(stack.end(), kWindows.begin(), kWindows.end());
    EXPECT_EQ(run_exact_kernel(op, stack), is_plain);
    EXPECT_EQ(stack.size(), is_plain ? 1 : op.num_args());
  }
}

} // namespace
} // namespace lazyplug
