#include "backend/recording/fast_ops.h"

#include "backend/ops/op_table.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class FastOpsTest : public BackendTest {
 protected:
  // Ops with tensors, numbers and nothing at all; with and without a write, of the first argument or the last.
  static at::Tensor step(const at::Tensor& x, double factor) {
    at::Tensor y = at::add(x, x, factor);
    y.mul_(x);
    at::Tensor out = at::zeros_like(x);
    EXPECT_TRUE(at::sub_out(out, y, x, factor).is_same(out));
    y.add_(out);
    return at::mm(y, x) + factor;
  }
};

TEST_F(FastOpsTest, AreKnownByName) {
  EXPECT_TRUE(OpTable::get().fast({"aten::add", "Tensor"}));
  EXPECT_TRUE(OpTable::get().fast({"aten::add", "out"}));
  EXPECT_FALSE(OpTable::get().fast({"aten::add", "Scalar_out"}));
  EXPECT_FALSE(OpTable::get().fast({"aten::nonzero", ""}));
}

TEST_F(FastOpsTest, ComputeTheSameWhetherPredictedOrNot) {
  const at::Tensor cpu = iota({3, 3});
  const at::Tensor x = to_lazy(cpu);
  for (const double factor : {2.0, 3.0, 4.0, 5.0, -1.0, 0.0, 6.0}) { // -1 and 0 are of other ranges
    expect_equal(step(x, factor), step(cpu, factor));
  }
  EXPECT_GT(count("Predicted"), 0);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(FastOpsTest, ErrorsOfACallThatWasNotPredictedAreEagers) {
  const at::Tensor x = to_lazy(iota({3, 3}));
  const at::Tensor other = to_lazy(iota({2, 2}));
  for (int i = 0; i < 4; ++i) {
    step(x, 2.0).cpu();
  }
  const std::string expected = error_of([] { at::add(iota({3, 3}), iota({2, 2})); });
  EXPECT_EQ(error_of([&] { at::add(x, other); }), expected);
  expect_equal(step(x, 2.0), step(iota({3, 3}), 2.0));
}

} // namespace
} // namespace lazyplug
