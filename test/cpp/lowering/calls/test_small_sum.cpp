#include "lowering/calls/small_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

std::optional<SmallSum> plan(const at::Tensor& tensor, const c10::IValue& dims, Opcode makes = Opcode::kRowSum) {
  return SmallSum::plan(makes, Geometry::of(*tensor.unsafeGetTensorImpl()), dims);
}

TEST(SmallSum, HasTheBitsOfPyTorchs) {
  const at::Tensor x = at::randn({6, 7, 8});
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {2}, {-1, 1}, {0, 1, 2}}) {
    const auto expect_made = [&](Opcode makes, const at::Tensor& expected) {
      const auto sum = plan(x, dims, makes);
      ASSERT_TRUE(sum);
      at::Tensor result = at::empty(sum->result_sizes(x.sizes(), /*keeps_dims=*/true));
      EXPECT_EQ(result.numel(), sum->result_numel());
      sum->run(x.const_data_ptr(), result.data_ptr());
      EXPECT_TRUE(at::equal(result, expected));
    };
    expect_made(Opcode::kRowSum, x.sum(dims, /*keepdim=*/true));
    expect_made(Opcode::kRowMean, x.mean(dims, /*keepdim=*/true));
    if (dims.front() != 0 || dims.size() > 1) { // rows
      expect_made(Opcode::kRowNorm, at::linalg_vector_norm(x, 2, dims, /*keepdim=*/true));
    }
    EXPECT_EQ(c10::IntArrayRef(plan(x, dims)->result_sizes(x.sizes(), /*keeps_dims=*/false)), x.sum(dims).sizes());
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

TEST(SmallSum, KnowsSumsMeansAndNorms) {
  const auto makes = [](const char* name, const char* overload) {
    return SmallSum::find(make_op(name, overload))->makes;
  };
  EXPECT_EQ(makes("aten::sum", "dim_IntList"), Opcode::kRowSum);
  EXPECT_EQ(makes("aten::mean", "dim"), Opcode::kRowMean);
  EXPECT_EQ(makes("aten::mean", ""), Opcode::kRowMean);
  EXPECT_EQ(makes("aten::linalg_vector_norm", ""), Opcode::kRowNorm);
  EXPECT_FALSE(SmallSum::find(make_op("aten::nansum")));
  EXPECT_TRUE(SmallSum::makes_it(*SmallSum::find(make_op("aten::linalg_vector_norm")), 2.0));
  EXPECT_FALSE(SmallSum::makes_it(*SmallSum::find(make_op("aten::linalg_vector_norm")), 1));
}

} // namespace
} // namespace lazyplug
