#include "kernels/product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lazyplug::kernels {
namespace {

Matrix matrix_of(const at::Tensor& tensor) {
  return {tensor.size(0), tensor.size(1), tensor.stride(0), tensor.stride(1)};
}

std::optional<Product> plan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  return Product::plan(result.scalar_type(), matrix_of(a), matrix_of(b), matrix_of(result));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

// Matrices of these sizes, by rows, by columns, and with gaps between rows.
std::vector<at::Tensor> matrices(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return {
      at::randn({rows, columns}, dtype),
      at::randn({columns, rows}, dtype).t(),
      at::randn({rows, columns + 3}, dtype).narrow(1, 1, columns),
      at::randn({columns, rows + 2}, dtype).t().narrow(0, 2, rows)};
}

class ProductTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(ProductTest, HasTheBitsOfPyTorchs) {
  size_t num_planned = 0;
  for (const auto& [m, n, k] :
       {std::tuple{8, 32, 32}, {1, 64, 64}, {5, 1, 7}, {1, 1, 9}, {17, 3, 1}, {33, 20, 65}, {64, 100, 48}}) {
    for (const at::Tensor& a : matrices(m, k, GetParam())) {
      for (const at::Tensor& b : matrices(k, n, GetParam())) {
        const at::Tensor start = at::randn({m, n}, GetParam());
        for (at::Tensor result : {start.clone(), start.t().clone().t()}) {
          const auto product = plan(a, b, result);
          ASSERT_TRUE(product) << m << n << k;
          product->run(0.5, a.const_data_ptr(), b.const_data_ptr(), 1, result.data_ptr());
          at::Tensor expected = at::empty_like(result);
          at::addmm_out(expected, start, a, b, 1, 0.5);
          EXPECT_TRUE(same_bits(result, expected)) << m << n << k;
          result.fill_(NAN);
          product->run(1, a.const_data_ptr(), b.const_data_ptr(), 0, result.data_ptr());
          EXPECT_TRUE(same_bits(result, at::mm(a, b))) << m << n << k;
          ++num_planned;
        }
      }
    }
  }
  EXPECT_EQ(num_planned, 7 * 4 * 4 * 2);
}

TEST_P(ProductTest, LeavesWhatMustBeCopied) {
  const at::Tensor a = at::ones({4, 6}, GetParam());
  const at::Tensor b = at::ones({6, 3}, GetParam());
  const at::Tensor result = at::ones({4, 3}, GetParam());
  EXPECT_TRUE(plan(a, b, result));
  EXPECT_FALSE(plan(at::ones({4, 12}, GetParam()).slice(1, 0, 12, 2), b, result)) << "steps along both dimensions";
  EXPECT_FALSE(plan(at::ones({1, 6}, GetParam()).expand({4, 6}), b, result)) << "rows are one";
  EXPECT_FALSE(plan(a, b, at::ones({4, 6}, GetParam()).slice(1, 0, 6, 2)));
  EXPECT_FALSE(plan(at::ones({4, 0}, GetParam()), at::ones({0, 3}, GetParam()), result)) << "nothing to compute";
  EXPECT_FALSE(plan(a, at::ones({5, 3}, GetParam()), result)) << "do not go together";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ProductTest, testing::Values(at::kFloat, at::kDouble));

TEST(Product, OfOtherDtypesThereIsNone) {
  const at::Tensor a = at::ones({4, 4}, at::kBFloat16);
  EXPECT_FALSE(plan(a, a, a));
}

} // namespace
} // namespace lazyplug::kernels
