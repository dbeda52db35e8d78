#include "lowering/nodes/draw_kernel.h"

#include <ATen/CPUGeneratorImpl.h>

#include <limits>

#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

class DrawKernelTest : public NodeTest {
 protected:
  DrawKernelTest() : NodeTest(draw_kernel) {}

  std::function<void(c10::Stack&)> kernel_of(const at::Tensor& probabilities, int64_t num_samples, bool replaces) {
    return NodeTest::kernel_of("aten::multinomial", "", probabilities, {num_samples, replaces, kNone});
  }
  // As PyTorch, whose generator is left in the same state.
  void expect_same_draws(const at::Tensor& probabilities) {
    const auto kernel = kernel_of(probabilities, 1, true);
    ASSERT_TRUE(kernel) << probabilities.sizes();
    for (uint64_t seed = 0; seed < 50; ++seed) {
      auto ours = at::detail::createCPUGenerator(seed);
      auto eagers = at::detail::createCPUGenerator(seed);
      c10::Stack stack{probabilities, 1, true, ours};
      kernel(stack);
      ASSERT_EQ(stack.size(), 1);
      EXPECT_TRUE(stack[0].toTensor().equal(at::multinomial(probabilities, 1, true, eagers))) << seed;
      EXPECT_TRUE(ours.get_state().equal(eagers.get_state())) << seed;
    }
  }
  void expect_refused(const at::Tensor& probabilities, const char* because) {
    const auto kernel = kernel_of(at::ones_like(probabilities), 1, true);
    ASSERT_TRUE(kernel);
    c10::Stack stack{probabilities, 1, true, kNone};
    try {
      kernel(stack);
      ADD_FAILURE() << "not refused: " << because;
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(because), std::string::npos) << error.what();
    }
  }

  const c10::IValue kNone;
};

TEST_F(DrawKernelTest, DrawsWhatPyTorchDraws) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    expect_same_draws(at::tensor({0.1, 0.0, 0.7, 0.2}, dtype));
    expect_same_draws(at::rand({5, 7}, dtype));
    expect_same_draws(at::rand({1, 2}, dtype));
    expect_same_draws(at::ones({3, 1}, dtype));
    expect_same_draws(at::rand({300, 100}, dtype));
  }
  const at::Tensor few = at::zeros({4, 6});
  few.diagonal().fill_(1e-42F);
  expect_same_draws(few);
}

TEST_F(DrawKernelTest, RefusesWhatPyTorchRefuses) {
  const at::Tensor zeros = at::rand({3, 4});
  zeros[1].fill_(0);
  expect_refused(zeros, "sum of probabilities <= 0");
  for (const float bad : {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor probabilities = at::rand({3, 4});
    probabilities[2][3] = bad;
    expect_refused(probabilities, "either `inf`, `nan` or element < 0");
  }
}

TEST_F(DrawKernelTest, LeavesTheRestToPyTorch) {
  EXPECT_TRUE(kernel_of(at::rand({3, 4}), 1, false));
  EXPECT_FALSE(kernel_of(at::rand({3, 4}), 2, true));
  EXPECT_FALSE(kernel_of(at::rand({3, 4}), 2, false));
  EXPECT_FALSE(kernel_of(at::rand({3, 4}).t(), 1, true));
  EXPECT_FALSE(kernel_of(at::rand({3, 4}).to(at::kHalf), 1, true));
  EXPECT_FALSE(kernel_of(at::rand({at::internal::GRAIN_SIZE}), 1, true));
  EXPECT_FALSE(NodeTest::kernel_of("aten::argmax", "", at::rand({3}), {0, false}));
}

TEST_F(DrawKernelTest, ReadsATensorThatLiesOtherwise) {
  const auto kernel = kernel_of(at::rand({3, 4}), 1, true);
  const at::Tensor other = at::rand({4, 3}).t();
  c10::Stack stack{other, 1, true, at::detail::createCPUGenerator(7)};
  kernel(stack);
  EXPECT_TRUE(stack[0].toTensor().equal(at::multinomial(other, 1, true, at::detail::createCPUGenerator(7))));
}

} // namespace
} // namespace lazyplug
