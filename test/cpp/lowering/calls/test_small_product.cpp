#include "lowering/calls/small_product.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <limits>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

std::optional<SmallProduct> plan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {}) {
  const auto added = bias.defined() ? std::optional(geometry_of(bias)) : std::nullopt;
  const Geometry result = Geometry::contiguous(a.scalar_type(), {a.size(0), b.size(1)});
  return SmallProduct::plan(added ? &*added : nullptr, geometry_of(a), geometry_of(b), result);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::equal(a.view(at::kByte), b.view(at::kByte));
}

TEST(SmallProduct, HasTheBitsOfPyTorch) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor a = at::randn({7, 24}, dtype);
    const at::Tensor b = at::randn({9, 24}, dtype).t();
    const at::Tensor bias = at::randn({7, 1}, dtype);
    EXPECT_TRUE(same_bits(plan(a, b)->run(1, a.data_ptr(), b.data_ptr(), nullptr), a.mm(b)));
    EXPECT_TRUE(same_bits(
        plan(a, b, bias)->run(-0.5, a.data_ptr(), b.data_ptr(), bias.data_ptr()),
        at::addmm(bias, a, b, 1, -0.5)));
  }
}

TEST(SmallProduct, IsNotPlannedForTheRest) {
  const at::Tensor a = at::randn({8, 16});
  EXPECT_FALSE(plan(a, at::randn({15, 4})));
  EXPECT_FALSE(plan(a, at::randn({16, 4}, at::kDouble)));
  EXPECT_FALSE(plan(a.to(at::kHalf), at::randn({16, 4}).to(at::kHalf)));
  EXPECT_FALSE(plan(a, at::randn({16, 4}), at::randn({5})));
  EXPECT_FALSE(plan(a, at::randn({16, 4}), at::randn({1, 1, 4})));
  EXPECT_FALSE(plan(at::randn({256, 2}, at::kDouble), at::randn({2, 128}, at::kDouble))); // large
  EXPECT_TRUE(plan(a, at::randn({16, 4})));
}

TEST(SmallProduct, DependsOnNumbersOnlyWhereItAdds) {
  const at::Tensor a = at::randn({2, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(plan(a, a)->goes(1, 0));
  EXPECT_TRUE(plan(a, a, a)->goes(0.5, 1));
  EXPECT_FALSE(plan(a, a, a)->goes(1, 0.5));
  EXPECT_FALSE(plan(a, a, a)->goes(nan, 1));
}

TEST(SmallProduct, LeavesRoundedOperandsToPyTorch) {
  const at::Tensor a = at::randn({32, 32});
  const at::Tensor small = at::randn({4, 4});
  auto& context = at::globalContext();
  const auto before = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL, at::Float32Precision::BF16);
  EXPECT_FALSE(plan(a, a)->goes(1, 0));
  EXPECT_TRUE(plan(small, small)->goes(1, 0));
  context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL, before);
  EXPECT_TRUE(plan(a, a)->goes(1, 0));
}

} // namespace
} // namespace lazyplug
