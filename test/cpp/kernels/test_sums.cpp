#include "kernels/sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

class SumsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(1);
  }

  // Over the middle dimension.
  static at::Tensor sum(const at::Tensor& tensor, Opcode makes) {
    const Reduction reduction{tensor.size(0), tensor.size(1), tensor.size(2), makes};
    at::Tensor result = at::full({tensor.size(0), tensor.size(2)}, NAN, tensor.options());
    reduce(reduction, tensor.scalar_type(), tensor.const_data_ptr(), result.data_ptr());
    return result;
  }

  static void expect_cpus(at::IntArrayRef sizes) {
    const at::Tensor tensor = at::randn(sizes, GetParam()) * 100;
    EXPECT_TRUE(at::equal(sum(tensor, Opcode::kRowSum), tensor.sum(1))) << tensor.sizes();
    EXPECT_TRUE(at::equal(sum(tensor, Opcode::kRowMean), tensor.mean(1))) << tensor.sizes();
  }
};

TEST_P(SumsTest, OfRowsHaveTheCpusBits) {
  for (int64_t length = 2; length < 300; ++length) {
    expect_cpus({3, length, 1});
  }
  for (const int64_t length : {1000, 4095, 4096, 20000, 32767}) {
    expect_cpus({1, length, 1});
  }
}

TEST_P(SumsTest, NormsAreThoseOfRows) {
  if (GetParam() != at::kFloat) {
    return; // there are none
  }
  for (int64_t length = 2; length < 100; ++length) {
    const at::Tensor rows = at::randn({3, length, 1});
    const at::Tensor expected = rows.to(at::kDouble).norm(2, {1}, /*keepdim=*/false);
    EXPECT_TRUE(at::allclose(sum(rows, Opcode::kRowNorm).to(at::kDouble), expected, 1e-6, 0)) << length;
  }
}

TEST_P(SumsTest, OfColumnsHaveTheCpusBits) {
  for (int64_t columns = 2; columns < 150; ++columns) {
    for (const int64_t rows : {2, 3, 8, 17, 64, 67}) {
      expect_cpus({1, rows, columns});
    }
  }
  for (int64_t rows = 2; rows < 400; ++rows) {
    expect_cpus({1, rows, 45});
  }
  expect_cpus({1, 5000, 3});
  expect_cpus({1, 700, 40});
}

TEST_P(SumsTest, OfWhatIsNoNumberOrInfiniteOrAZero) {
  const at::Tensor tensor = at::zeros({1, 20, 40}, GetParam());
  tensor[0][3] = -0.0;
  tensor[0][4][1] = NAN;
  tensor[0][5][2] = INFINITY;
  tensor[0][6][2] = -INFINITY;
  tensor[0][7][3] = -INFINITY;
  EXPECT_TRUE(at::allclose(sum(tensor, Opcode::kRowSum), tensor.sum(1), 0, 0, /*equal_nan=*/true));
  const at::Tensor negative = at::full({1, 20, 40}, -0.0, GetParam());
  EXPECT_TRUE(at::equal(sum(negative, Opcode::kRowSum).signbit(), negative.sum(1).signbit()));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SumsTest, testing::Values(at::kFloat, at::kDouble));

} // namespace
} // namespace lazyplug::kernels
