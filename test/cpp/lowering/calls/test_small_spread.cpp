#include "lowering/calls/small_spread.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

std::optional<SmallSpread> spread_of(std::vector<at::Tensor> inputs, const at::Tensor& written = {}) {
  c10::SmallVector<const c10::TensorImpl*, 4> impls;
  for (const at::Tensor& input : inputs) {
    impls.push_back(input.unsafeGetTensorImpl());
  }
  return SmallSpread::plan(impls, written.defined() ? written.unsafeGetTensorImpl() : nullptr, 4096);
}

const kernels::Program& difference() {
  static const auto program = kernels::parse("f32 memory 3 slots 3 numbers 1 2 = sub 0 1 0 ;");
  return *program;
}

at::Tensor run_spread(const SmallSpread& spread, const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  const double scale = 1;
  const kernels::Memory memory[] = {
      {a.mutable_data_ptr(), at::kFloat},
      {b.mutable_data_ptr(), at::kFloat},
      {out.mutable_data_ptr(), at::kFloat}};
  spread.run(difference(), memory, &scale);
  return out;
}

TEST(SmallSpread, Broadcasts) {
  const at::Tensor a = at::randn({4, 1, 5});
  const at::Tensor b = at::randn({3, 1});
  const auto spread = spread_of({a, b});
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->sizes(), (at::IntArrayRef{4, 3, 5}));
  EXPECT_TRUE(spread->is_broadcast(0));
  EXPECT_TRUE(spread->is_broadcast(1));
  EXPECT_TRUE(at::equal(run_spread(*spread, a, b, at::empty({4, 3, 5})), a - b));
  EXPECT_FALSE(spread_of({a, at::randn({3})}));
}

TEST(SmallSpread, FillsGapsOfWhatIsWrittenOnly) {
  const at::Tensor whole = at::randn({4, 6});
  const at::Tensor expected = whole.clone();
  const at::Tensor column = whole.t().slice(0, 1, 6, 2); // 3x4, strides 2 and 6
  const at::Tensor b = at::randn({4});
  const auto spread = spread_of({column, b}, column);
  ASSERT_TRUE(spread);
  EXPECT_FALSE(spread->is_broadcast(0));
  run_spread(*spread, column, b, column);
  expected.t().slice(0, 1, 6, 2).sub_(b);
  EXPECT_TRUE(at::equal(whole, expected));
}

TEST(SmallSpread, LeavesResultsOfOtherOrderToPyTorch) {
  const at::Tensor x = at::randn({4, 6});
  EXPECT_TRUE(spread_of({x, at::randn({6})}));
  EXPECT_FALSE(spread_of({x.t(), at::randn({4})}));
  EXPECT_TRUE(spread_of({x.t(), at::randn({4})}, x.t()));
}

TEST(SmallSpread, DoesNotWriteWhatOverlaps) {
  const at::Tensor x = at::randn({6});
  EXPECT_FALSE(spread_of({x}, x.expand({2, 6})));
  EXPECT_FALSE(spread_of({at::randn({1})}, x.unfold(0, 3, 1)));
  EXPECT_FALSE(spread_of({at::randn({2, 6})}, x)); // that would have to grow
}

} // namespace
} // namespace lazyplug
