#include "lowering/max_pool_kernel.h"

#include <ATen/ATen.h>

#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

constexpr const char* kName = "aten::max_pool2d_with_indices";

c10::Stack constants(
    std::vector<int64_t> window,
    std::vector<int64_t> stride,
    std::vector<int64_t> padding,
    std::vector<int64_t> step = {1},
    bool ceil_mode = false) {
  return {c10::IValue(window), c10::IValue(stride), c10::IValue(padding), c10::IValue(step), ceil_mode};
}

c10::Stack with(const at::Tensor& input, const c10::Stack& constants) {
  c10::Stack stack{input};
  stack.insert(stack.end(), constants.begin(), constants.end());
  return stack;
}

class MaxPoolKernelTest : public NodeTest {
 protected:
  MaxPoolKernelTest() : NodeTest(max_pool_kernel) {}
};

bool is_computed(const at::Tensor& input, const c10::Stack& constants) {
  c10::Stack stack = with(input, constants);
  const size_t size = stack.size();
  const bool is_computed = run_max_pool(make_op(kName), stack);
  EXPECT_EQ(stack.size(), is_computed ? 2 : size);
  return is_computed;
}

TEST_F(MaxPoolKernelTest, ComputesWhatPyTorchComputes) {
  for (const auto& input : {at::randn({2, 3, 9, 12}), at::randn({3, 9, 12}), at::randn({1, 1, 6, 6}).round()}) {
    for (const bool ceil_mode : {false, true}) {
      for (const auto& arguments :
           {constants({2}, {}, {0}, {1}, ceil_mode),
            constants({2, 3}, {2}, {1, 0}, {1}, ceil_mode),
            constants({3}, {1, 2}, {1}, {2, 1}, ceil_mode)}) {
        EXPECT_TRUE(is_computed(input, arguments));
        c10::Stack ours = with(input, arguments);
        c10::Stack expected = ours;
        ASSERT_TRUE(run_max_pool(make_op(kName), ours));
        make_op(kName).handle().callBoxed(expected);
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(ours[i].toTensor().equal(expected[i].toTensor())) << i;
          EXPECT_EQ(ours[i].toTensor().strides(), expected[i].toTensor().strides());
        }
      }
    }
  }
}

TEST_F(MaxPoolKernelTest, LeavesTheRestToPyTorch) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  const auto arguments = constants({2}, {2}, {0});
  EXPECT_FALSE(is_computed(input.to(at::kDouble), arguments));
  EXPECT_FALSE(is_computed(input.contiguous(at::MemoryFormat::ChannelsLast), arguments));
  EXPECT_FALSE(is_computed(input.transpose(2, 3), arguments));
  EXPECT_FALSE(is_computed(at::randn({0, 3, 8, 8}), arguments));
  EXPECT_FALSE(is_computed(at::randn({8, 8}), arguments));
  EXPECT_FALSE(is_computed(input, constants({2}, {2}, {2})));
  EXPECT_FALSE(is_computed(input, constants({0}, {2}, {0})));
  EXPECT_FALSE(is_computed(input, constants({2}, {2}, {0}, {0})));
  EXPECT_FALSE(is_computed(input, constants({2}, {2, 2, 2}, {0})));
  c10::Stack other{input};
  EXPECT_FALSE(run_max_pool(make_op("aten::relu"), other));
  expect_same(kName, "", input.transpose(2, 3), constants({2}, {2}, {0}));
}

TEST_F(MaxPoolKernelTest, FindsNoPlacesThatNobodyReads) {
  const at::Tensor input = at::randn({2, 3, 8, 8});
  const auto kernel = kernel_of(kName, "", input, constants({2}, {2}, {0}));
  ASSERT_TRUE(kernel);
  kernel(stack_);
  ASSERT_EQ(stack_.size(), 2);
  EXPECT_TRUE(stack_[0].toTensor().equal(at::max_pool2d(input, {2})));
  EXPECT_FALSE(stack_[1].toTensor().defined());
}

} // namespace
} // namespace lazyplug
