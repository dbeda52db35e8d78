#include "backend/caches/steps.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

TEST_F(BackendTest, ReadsEndSteps) {
  const uint64_t before = current_step();
  const at::Tensor x = to_lazy(iota({3}));
  const at::Tensor sum = (x + x).sum();
  EXPECT_EQ(current_step(), before);
  EXPECT_EQ(sum.item<float>(), 6);
  EXPECT_EQ(current_step(), before + 1);
  expect_equal(x * x, iota({3}) * iota({3}));
  EXPECT_EQ(current_step(), before + 2);
  note_step();
  EXPECT_EQ(current_step(), before + 3);
}

} // namespace
} // namespace lazyplug
