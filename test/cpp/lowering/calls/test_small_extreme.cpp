#include "lowering/calls/small_extreme.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

std::optional<SmallExtreme>
plan(const char* op, const char* overload, const at::Tensor& tensor, const c10::IValue& dim) {
  return SmallExtreme::plan(
      *SmallExtreme::find(make_op(op, overload)),
      Geometry::of(*tensor.unsafeGetTensorImpl()),
      dim);
}

const c10::IValue kAll;

TEST(SmallExtreme, KnowsSearches) {
  EXPECT_TRUE(SmallExtreme::find(make_op("aten::max", "dim")));
  EXPECT_TRUE(SmallExtreme::find(make_op("aten::_is_all_true")));
  EXPECT_FALSE(SmallExtreme::find(make_op("aten::maximum")));
}

TEST(SmallExtreme, FindsTheSameAsPyTorch) {
  const at::Tensor x = at::randn({6, 7, 8});
  for (int64_t dim = 0; dim < 3; ++dim) {
    const auto extreme = plan("aten::max", "dim", x, dim);
    ASSERT_TRUE(extreme);
    const auto sizes = extreme->result_sizes(x.sizes(), /*keeps_dims=*/true);
    const auto [values, places] = extreme->run(sizes, x.const_data_ptr());
    const auto [expected_values, expected_places] = x.max(dim, /*keepdim=*/true);
    EXPECT_TRUE(at::equal(values, expected_values));
    EXPECT_TRUE(at::equal(places, expected_places));
    EXPECT_EQ(values.numel(), extreme->result_numel());
  }
}

TEST(SmallExtreme, OfAllElementsIsANumber) {
  const at::Tensor x = at::randn({6, 7});
  const auto extreme = plan("aten::min", "", x, kAll);
  ASSERT_TRUE(extreme);
  EXPECT_TRUE(extreme->result_sizes(x.sizes(), /*keeps_dims=*/false).empty());
  EXPECT_TRUE(at::equal(extreme->run({}, x.const_data_ptr())[0], x.min()));
}

TEST(SmallExtreme, DoesNotSayWhichZero) {
  const at::Tensor x = at::tensor({0.0F, -0.0F, -1.0F});
  EXPECT_FALSE(plan("aten::max", "", x, kAll)->run({}, x.const_data_ptr())[0].defined());
  EXPECT_TRUE(plan("aten::min", "", x, kAll)->run({}, x.const_data_ptr())[0].defined());
}

TEST(SmallExtreme, LeavesTheRest) {
  EXPECT_FALSE(plan("aten::amax", "", at::ones(std::vector<int64_t>(65, 1)), 0));
  const at::Tensor x = at::randn({6, 7});
  EXPECT_FALSE(plan("aten::argmax", "", x, 2)) << "not there";
  EXPECT_FALSE(plan("aten::argmax", "", x, -3));
  EXPECT_FALSE(plan("aten::argmax", "", x.t(), 0)) << "gaps";
  EXPECT_FALSE(plan("aten::argmax", "", x.slice(0, 0, 0), 0)) << "nothing to find";
  EXPECT_FALSE(plan("aten::argmax", "", x.to(at::kHalf), 0));
  EXPECT_FALSE(plan("aten::amax", "", x, std::vector<int64_t>{0, 1})) << "several dimensions";
  EXPECT_FALSE(plan("aten::amax", "", x, 0)) << "columns";
  EXPECT_FALSE(plan("aten::any", "", x, kAll)) << "no booleans";
}

} // namespace
} // namespace lazyplug
