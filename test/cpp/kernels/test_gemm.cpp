#include "kernels/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "kernels/product.h"

namespace lazyplug::kernels {
namespace {

Matrix matrix_of(const at::Tensor& tensor) {
  return {tensor.size(0), tensor.size(1), tensor.stride(0), tensor.stride(1)};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.view(at::kInt), b.view(at::kInt));
}

// By rows or by columns, with a gap between these.
at::Tensor matrix(int64_t rows, int64_t columns, bool by_columns) {
  return by_columns ? at::randn({columns, rows + 1}).t().narrow(0, 1, rows)
                    : at::randn({rows, columns + 2}).narrow(1, 0, columns);
}

class GemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gemm(64, 64, 64)) {
      GTEST_SKIP() << "BLAS has better kernels on this processor";
    }
  }
  void TearDown() override {
    at::set_num_threads(num_threads_);
  }

  static void expect_bits_of_blas(int64_t rows, int64_t columns, int64_t inner) {
    const auto name = [&] { return c10::str(rows, " x ", columns, ", ", inner, ", threads: ", at::get_num_threads()); };
    for (const bool a_by_columns : {false, true}) {
      for (const bool b_by_columns : {false, true}) {
        const at::Tensor a = matrix(rows, inner, a_by_columns);
        const at::Tensor b = matrix(inner, columns, b_by_columns);
        at::Tensor result = at::full({rows, columns}, NAN);
        const auto product = Product::plan(at::kFloat, matrix_of(a), matrix_of(b), matrix_of(result));
        ASSERT_TRUE(product && product->uses_gemm()) << name();
        product->run(1, a.const_data_ptr(), b.const_data_ptr(), 0, result.data_ptr());
        EXPECT_TRUE(same_bits(result, at::mm(a, b))) << name();
        const at::Tensor bias = at::randn({columns});
        product->run_from(bias.const_data_ptr(), 0, a.const_data_ptr(), b.const_data_ptr(), result.data_ptr());
        EXPECT_TRUE(same_bits(result, at::addmm(bias, a, b))) << name();
        const at::Tensor start = at::randn({rows, columns});
        result.copy_(start);
        product->run(1, a.const_data_ptr(), b.const_data_ptr(), 1, result.data_ptr());
        EXPECT_TRUE(same_bits(result, at::addmm(start, a, b))) << name();
      }
    }
  }

 private:
  const int num_threads_ = at::get_num_threads();
};

TEST_F(GemmTest, HasTheBitsOfBlas) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& [rows, columns, inner] :
         {std::tuple{32, 32, 32},
          {16, 64, 16},
          {17, 33, 100},
          {12 * 7 + 1, 95, 192},
          {64, 48, 194},
          {31, 200, 256},
          {100, 17, 382},
          {128, 96, 384},
          {40, 64, 385},
          {600, 40, 50},
          {64, 64, 1000}}) {
      expect_bits_of_blas(rows, columns, inner);
    }
  }
}

// They would share one set of the L1 cache, and are copied.
TEST_F(GemmTest, RowsMayLieAMultipleOfAPageApart) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& [rows, columns, inner] :
         {std::tuple{12 * 5 + 1, 300, 1024}, {16, 129, 2048}, {500, 256, 1024}, {30, 260, 200}, {30, 64, 1024}}) {
      const at::Tensor a = at::randn({rows, (inner + 1023) / 1024 * 1024}).narrow(1, 0, inner);
      const at::Tensor b = at::randn({inner, columns});
      const at::Tensor result = at::full({rows, columns}, NAN);
      const auto product = Product::plan(at::kFloat, matrix_of(a), matrix_of(b), matrix_of(result));
      ASSERT_TRUE(product && product->uses_gemm());
      product->run(1, a.const_data_ptr(), b.const_data_ptr(), 0, result.data_ptr());
      EXPECT_TRUE(same_bits(result, at::mm(a, b))) << rows << " x " << columns << ", " << inner;
    }
  }
}

TEST_F(GemmTest, HasTheBitsOfBlasForRandomSizes) {
  std::mt19937 generator(1);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  };
  int num_tried = 0;
  for (int i = 0; i < 60; ++i) {
    at::set_num_threads(1 + i % 2);
    const int64_t rows = draw(16, 150);
    const int64_t columns = draw(16, 150);
    const int64_t inner = draw(16, 500);
    if (has_gemm(rows, columns, inner)) {
      expect_bits_of_blas(rows, columns, inner);
      ++num_tried;
    }
  }
  EXPECT_GT(num_tried, 30);
}

TEST_F(GemmTest, NumbersThatAreNoneGoThrough) {
  at::Tensor a = at::randn({32, 64});
  const at::Tensor b = at::randn({64, 48});
  a[1][2] = NAN;
  a[2][3] = INFINITY;
  a[3].fill_(1e38F);
  a[4].fill_(1e-42F);
  at::Tensor result = at::empty({32, 48});
  const auto product = Product::plan(at::kFloat, matrix_of(a), matrix_of(b), matrix_of(result));
  product->run(1, a.const_data_ptr(), b.const_data_ptr(), 0, result.data_ptr());
  const at::Tensor expected = at::mm(a, b);
  EXPECT_TRUE(at::equal(result.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(result.nan_to_num(), expected.nan_to_num()));
}

TEST_F(GemmTest, LeavesToBlasWhatThatComputesOtherwise) {
  EXPECT_FALSE(has_gemm(15, 64, 64));
  EXPECT_FALSE(has_gemm(64, 15, 64));
  EXPECT_FALSE(has_gemm(64, 64, 193)) << "halves that are not alike";
  EXPECT_FALSE(has_gemm(16, 16, 16)) << "small";
  EXPECT_TRUE(has_bits_of_blas(16, 2));
  EXPECT_FALSE(has_bits_of_blas(40, 3)) << "parts of threads are narrow";
  EXPECT_TRUE(has_bits_of_blas(48, 3));
}

TEST(InnerBlockTest, ThoseOfTheWholeAreBlocksAndARest) {
  EXPECT_EQ(inner_block(100, 0), 100);
  EXPECT_EQ(inner_block(256, 0), 128);
  EXPECT_EQ(inner_block(256, 128), 128);
  EXPECT_EQ(inner_block(400, 192), 192);
  EXPECT_EQ(inner_block(400, 384), 16);
}

} // namespace
} // namespace lazyplug::kernels
