#include "kernels/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/blas_kernels.h"
#include "kernels/lanes.h"
#include "kernels/product.h"
#include "kernels/tile_loops.h"

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
    if (blas_kernels() == BlasKernels::kOther) {
      GTEST_SKIP() << "BLAS has better kernels on this processor";
    }
  }
  void TearDown() override {
    at::set_num_threads(num_threads_);
  }

  static bool is_ours(const ProductSizes& sizes) {
    return has_gemm(blas_kernels(), sizes) && has_bits_of_blas(blas_kernels(), sizes, at::get_num_threads());
  }

  // MKL's for processors that are not Intel's: with vectors that are as wide as those, we compute all.
  static bool computes_large() {
    return loops<float>().num_lanes == kLanesOfAvx512 && blas_kernels() != BlasKernels::kBy384;
  }

  // Of how many of the four layouts of its matrices such a product is ours.
  static int expect_bits_of_blas(int64_t rows, int64_t columns, int64_t inner) {
    const auto name = [&] { return c10::str(rows, " x ", columns, ", ", inner, ", threads: ", at::get_num_threads()); };
    int num_ours = 0;
    for (const bool a_by_columns : {false, true}) {
      for (const bool b_by_columns : {false, true}) {
        const at::Tensor a = matrix(rows, inner, a_by_columns);
        const at::Tensor b = matrix(inner, columns, b_by_columns);
        at::Tensor result = at::full({rows, columns}, NAN);
        const auto product = Product::plan(at::kFloat, matrix_of(a), matrix_of(b), matrix_of(result));
        EXPECT_EQ(product && product->uses_gemm(), is_ours({rows, columns, inner, !b_by_columns})) << name();
        if (!product || !product->uses_gemm()) {
          continue;
        }
        ++num_ours;
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
    return num_ours;
  }

  // From so many rows and columns up to as many of either.
  struct Sizes {
    int64_t rows;
    int64_t columns;
    int64_t most;
    int64_t most_inner;
  };

  // How many of so many random products were ours, with these numbers of threads in turn.
  static int expect_bits_for_random_sizes(int times, const Sizes& sizes, const std::vector<int>& threads) {
    std::mt19937 generator(1);
    const auto draw = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(generator);
    };
    int num_tried = 0;
    for (int i = 0; i < times; ++i) {
      const int num_threads = threads[i % threads.size()];
      at::set_num_threads(num_threads);
      const int64_t rows = draw(sizes.rows, sizes.most);
      const int64_t columns = draw(sizes.columns, sizes.most);
      num_tried += expect_bits_of_blas(rows, columns, draw(16, sizes.most_inner)) > 0;
    }
    return num_tried;
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
      const int num_ours = expect_bits_of_blas(rows, columns, inner);
      if (blas_kernels() != BlasKernels::kBy384) {
        EXPECT_EQ(num_ours, 4);
      }
    }
  }
}

TEST_F(GemmTest, HasTheBitsOfIntelsForShortSums) {
  if (blas_kernels() != BlasKernels::kBy384) {
    GTEST_SKIP() << "BLAS has other kernels on this processor";
  }
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const auto& [rows, columns, inner, num_layouts] :
         {std::tuple{64, 64, 64, 4},
          {24, 12, 31, 4},
          {54, 100, 384, 4},
          {27, 200, 193, 4},
          {60, 3, 256, 0},
          {60, 4, 256, 4},
          {60, 10, 256, 4},
          {24, 10, 32, 4},
          {27, 5, 191, 4},
          {48, 11, 383, 4},
          {50, 13, 383, 4},
          {4, 128, 128, 2},
          {7, 64, 384, 2},
          {128, 128, 200, 2},
          {64, 256, 100, 4},
          {200, 12, 5, 4}}) {
      EXPECT_EQ(expect_bits_of_blas(rows, columns, inner), num_layouts) << rows << " x " << columns << ", " << inner;
    }
  }
}

TEST_F(GemmTest, SmallOnesHaveTheBitsOfBlasWhereThatHasOneKernel) {
  int num_tried = 0;
  for (const auto& [rows, columns, inner] :
       {std::tuple{4, 12, 64}, {5, 13, 383}, {8, 32, 32}, {7, 90, 7}, {100, 15, 2}, {11, 31, 193}, {40, 72, 383}}) {
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      num_tried += expect_bits_of_blas(rows, columns, inner);
    }
  }
  EXPECT_EQ(num_tried > 0, has_gemm(blas_kernels(), {8, 32, 32}));
}

TEST_F(GemmTest, ZerosHaveTheSignsOfBlas) {
  int num_tried = 0;
  for (const int64_t inner : {2, 3, 16, 40}) {
    const at::Tensor a = at::randint(-1, 2, {32, inner}).to(at::kFloat) * at::randn({32, 1}).sign();
    const at::Tensor b = at::randint(-1, 2, {inner, 24}).to(at::kFloat) * at::randn({1, 24}).sign();
    const at::Tensor result = at::empty({32, 24});
    const auto product = Product::plan(at::kFloat, matrix_of(a), matrix_of(b), matrix_of(result));
    if (product && product->uses_gemm()) {
      product->run(1, a.const_data_ptr(), b.const_data_ptr(), 0, result.data_ptr());
      EXPECT_TRUE(same_bits(result, at::mm(a, b))) << inner;
      ++num_tried;
    }
  }
  EXPECT_GT(num_tried, 1);
}

// With more threads than there are processors, too.
TEST_F(GemmTest, PartsOfThreadsHaveTheBitsOfBlas) {
  EXPECT_GT(
      expect_bits_for_random_sizes(120, {.rows = 4, .columns = 12, .most = 140, .most_inner = 100}, {2, 3, 4, 5, 6}),
      20);
  EXPECT_EQ(
      expect_bits_for_random_sizes(60, {.rows = 4, .columns = 4, .most = 11, .most_inner = 384}, {1, 2, 3, 6}) > 0,
      blas_kernels() == BlasKernels::kBy384);
}

// They would share one set of the L1 cache, and are copied.
TEST_F(GemmTest, RowsMayLieAMultipleOfAPageApart) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& [rows, columns, inner] :
         {std::tuple{12 * 5 + 1, 300, 1024},
          {16, 129, 2048},
          {500, 256, 1024},
          {250, 130, 1024},
          {30, 260, 200},
          {30, 64, 1024},
          {12 * 5 + 1, 300, 100}}) {
      if (!has_gemm(blas_kernels(), {rows, columns, inner})) {
        EXPECT_FALSE(computes_large());
        continue;
      }
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

// So many columns' worth of memory between those of a, they are copied, too.
TEST_F(GemmTest, ColumnsMayLieFarApart) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    int num_ours = 0;
    for (const auto& [rows, columns, inner] :
         {std::tuple{300, 130, 200}, {1000, 70, 48}, {257, 64, 400}, {260, 130, 60}}) {
      num_ours += expect_bits_of_blas(rows, columns, inner);
    }
    EXPECT_EQ(num_ours, blas_kernels() == BlasKernels::kBy384 ? 6 : 16);
  }
}

TEST_F(GemmTest, HasTheBitsOfBlasForRandomSizes) {
  EXPECT_GT(expect_bits_for_random_sizes(60, {.rows = 16, .columns = 16, .most = 150, .most_inner = 500}, {1, 2}), 30);
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

// Few columns have a panel that is one vector wide, and few rows read the second matrix where it lies.
TEST_F(GemmTest, PanelsMayBeNarrow) {
  at::set_num_threads(2);
  int num_ours = 0;
  for (const int64_t columns : {12, 15, 16, 17, 31, 33, 47, 48, 49, 64}) {
    for (const int64_t rows : {5, 12, 24, 36, 37, 64}) {
      num_ours += expect_bits_of_blas(rows, columns, 90);
    }
  }
  EXPECT_GT(num_ours, 60);
}

TEST(InnerBlockTest, ThoseOfTheWholeAreBlocksAndARest) {
  EXPECT_EQ(inner_block(100, 0, 192), 100);
  EXPECT_EQ(inner_block(256, 0, 192), 128);
  EXPECT_EQ(inner_block(256, 128, 192), 128);
  EXPECT_EQ(inner_block(400, 192, 192), 192);
  EXPECT_EQ(inner_block(400, 384, 192), 16);
  EXPECT_EQ(inner_block(256, 0, 384), 256);
  EXPECT_EQ(inner_block(400, 0, 384), 200);
}

} // namespace
} // namespace lazyplug::kernels
