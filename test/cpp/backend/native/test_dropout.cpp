#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeDropout : public BackendTest {
 protected:
  static void seed(uint64_t value) {
    at::Generator generator = at::globalContext().defaultGenerator(lazy_device(0));
    generator.set_current_seed(value);
  }
  const at::Tensor x = to_lazy(at::ones({50, 40}));
};

TEST_F(NativeDropout, KeepsAndScalesWhereTheMaskSays) {
  const auto [result, mask] = at::native_dropout(x, 0.25, true);
  const at::Tensor kept = mask.cpu();
  EXPECT_EQ(kept.dtype(), at::kBool);
  EXPECT_NEAR(kept.to(at::kFloat).mean().item<float>(), 0.75, 0.05);
  expect_equal(result, kept.to(at::kFloat) / 0.75);
}

TEST_F(NativeDropout, FollowsTheSeedOfTheDevice) {
  seed(4);
  const at::Tensor first = std::get<1>(at::native_dropout(x, 0.5, true)).cpu();
  const at::Tensor second = std::get<1>(at::native_dropout(x, 0.5, true)).cpu();
  seed(4);
  EXPECT_TRUE(at::equal(std::get<1>(at::native_dropout(x, 0.5, true)).cpu(), first));
  EXPECT_FALSE(at::equal(first, second));
}

TEST_F(NativeDropout, Extremes) {
  expect_equal(std::get<0>(at::native_dropout(x, 0, true)), at::ones({50, 40}));
  expect_equal(std::get<0>(at::native_dropout(x, 1, true)), at::zeros({50, 40}));
  expect_equal(std::get<0>(at::native_dropout(x, 0.5, false)), at::ones({50, 40}));
  EXPECT_EQ(std::get<0>(at::native_dropout(at::empty({0}, on_lazy()), 0.5, true)).numel(), 0);
}

} // namespace
} // namespace lazyplug
