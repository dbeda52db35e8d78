#include "lowering/small_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

std::optional<SmallSum> plan(const at::Tensor& tensor, const c10::IValue& dims) {
  return SmallSum::plan(Geometry::of(*tensor.unsafeGetTensorImpl()), dims);
}

TEST(SmallSum, HasTheBitsOfPyTorchs) {
  const at::Tensor x = at::randn({6, 7, 8});
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {2}, {-1, 1}, {0, 1, 2}}) {
    const auto sum = plan(x, dims);
    ASSERT_TRUE(sum);
    at::Tensor result = at::empty(sum->result_sizes(x.sizes(), /*keeps_dims=*/true));
    EXPECT_EQ(result.numel(), sum->result_numel());
    sum->run(/*is_mean=*/false, x.const_data_ptr(), result.data_ptr());
    EXPECT_TRUE(at::equal(result, x.sum(dims, /*keepdim=*/true)));
    sum->run(/*is_mean=*/true, x.const_data_ptr(), result.data_ptr());
    EXPECT_TRUE(at::equal(result, x.mean(dims, /*keepdim=*/true)));
    EXPECT_EQ(c10::IntArrayRef(sum->result_sizes(x.sizes(), /*keeps_dims=*/false)), x.sum(dims).sizes());
  }
}

TEST(SmallSum, LeavesTheRest) {
  const at::Tensor x = at::randn({6, 7, 8});
  EXPECT_TRUE(plan(x, c10::IValue()));
  EXPECT_FALSE(plan(x, std::vector<int64_t>{1})) << "between others";
  EXPECT_FALSE(plan(x, std::vector<int64_t>{3})) << "not there";
  EXPECT_FALSE(plan(x, std::vector<int64_t>{0, -3})) << "twice";
  EXPECT_FALSE(plan(x, 1)) << "no list";
  EXPECT_FALSE(plan(x.transpose(0, 1), c10::IValue()));
  EXPECT_FALSE(plan(at::_neg_view(x), c10::IValue()));
  EXPECT_FALSE(plan(x.to(at::kLong), c10::IValue()));
}

TEST(SmallSum, KnowsSumsAndMeans) {
  EXPECT_TRUE(is_sum(make_op("aten::sum", "dim_IntList")));
  EXPECT_FALSE(is_mean(make_op("aten::sum", "dim_IntList")));
  EXPECT_TRUE(is_mean(make_op("aten::mean", "dim")));
  EXPECT_TRUE(is_sum(make_op("aten::mean", "")));
  EXPECT_FALSE(is_sum(make_op("aten::nansum")));
}

} // namespace
} // namespace lazyplug
