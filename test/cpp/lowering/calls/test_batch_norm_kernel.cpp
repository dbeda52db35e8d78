#include "lowering/calls/batch_norm_kernel.h"

#include <ATen/ATen.h>

#include "kernels/batch_norm.h"
#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

constexpr const char* kName = "aten::native_batch_norm";

class BatchNormKernelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_batch_norm()) {
      GTEST_SKIP() << "this target has no kernel for batch norms";
    }
  }

  static c10::Stack arguments(const at::Tensor& input, bool has_weight = true, bool has_running = true) {
    const auto make = [&](bool is_there) { return is_there ? at::rand({input.size(1)}) + 0.5 : at::Tensor(); };
    return {input, make(has_weight), make(has_weight), make(has_running), make(has_running), true, 0.1, 1e-5};
  }

  // Whether it is computed here, and then as PyTorch does, with the same running statistics.
  static bool is_computed(const c10::Stack& arguments) {
    c10::Stack ours;
    c10::Stack expected;
    for (const c10::IValue& argument : arguments) {
      const bool is_there = argument.isTensor() && argument.toTensor().defined();
      ours.push_back(is_there ? c10::IValue(argument.toTensor().clone()) : argument);
      expected.push_back(is_there ? c10::IValue(argument.toTensor().clone()) : argument);
    }
    const c10::Stack before = ours;
    const c10::Stack before_expected = expected;
    if (!run_exact_kernel(make_op(kName), ours)) {
      return false;
    }
    make_op(kName).handle().callBoxed(expected);
    EXPECT_EQ(ours.size(), 3);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(ours[i].toTensor().equal(expected[i].toTensor())) << i;
      EXPECT_EQ(ours[i].toTensor().strides(), expected[i].toTensor().strides()) << i;
    }
    for (const size_t running : {3, 4}) {
      const at::Tensor& updated = before[running].toTensor();
      EXPECT_TRUE(!updated.defined() || updated.equal(before_expected[running].toTensor())) << running;
    }
    return true;
  }
};

TEST_F(BatchNormKernelTest, HasTheBitsOfPyTorch) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {4, 16, 8, 8},
           {3, 2, 5, 7},
           {2, 37, 1, 2},
           {5, 20, 33},
           {2, 3, 4, 5, 6},
           {1, 70, 20, 20}}) {
    for (const bool has_weight : {false, true}) {
      for (const bool has_running : {false, true}) {
        EXPECT_TRUE(is_computed(arguments(at::randn(sizes) * 3 + 100, has_weight, has_running))) << sizes;
      }
    }
  }
  EXPECT_TRUE(is_computed(arguments(at::full({2, 3, 4, 4}, std::numeric_limits<float>::max()), false)));
}

TEST_F(BatchNormKernelTest, LeavesTheRestToPyTorch) {
  EXPECT_FALSE(is_computed(arguments(at::randn({8, 16}))));
  EXPECT_FALSE(is_computed(arguments(at::randn({8, 16, 1, 1}))));
  EXPECT_FALSE(is_computed(arguments(at::randn({8, 1, 4, 4}))));
  EXPECT_FALSE(is_computed(arguments(at::randn({0, 16, 4, 4}))));
  EXPECT_FALSE(is_computed(arguments(at::randn({8, 16, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast))));
  EXPECT_FALSE(is_computed(arguments(at::randn({8, 16, 4, 4}, at::kDouble))));
  c10::Stack evaluation = arguments(at::randn({8, 16, 4, 4}));
  evaluation[5] = false;
  EXPECT_FALSE(is_computed(evaluation));
}

} // namespace
} // namespace lazyplug
