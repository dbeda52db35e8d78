#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeAttention : public BackendTest {};

TEST_F(NativeAttention, ChoosesWhatTheCpuChooses) {
  const at::Tensor cpu = at::randn({1, 2, 8, 16});
  const at::Tensor x = to_lazy(cpu);
  EXPECT_EQ(at::_fused_sdp_choice(x, x, x), at::_fused_sdp_choice(cpu, cpu, cpu));
}

TEST_F(NativeAttention, ResultIsThatOfTheCpu) {
  const at::Tensor cpu = at::randn({1, 2, 8, 16});
  const at::Tensor x = to_lazy(cpu);
  expect_equal(
      at::scaled_dot_product_attention(x, x, x, {}, 0, /*is_causal=*/true),
      at::scaled_dot_product_attention(cpu, cpu, cpu, {}, 0, /*is_causal=*/true));
}

} // namespace
} // namespace lazyplug
