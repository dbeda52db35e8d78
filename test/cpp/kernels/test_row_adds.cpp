#include "kernels/row_adds.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lazyplug::kernels {
namespace {

struct Lists {
  std::vector<int64_t> from;
  std::vector<int64_t> to;
  std::vector<int64_t> factor_of;
};

Lists random_lists(int64_t count, int64_t num_rows, int64_t num_from, int64_t num_factors) {
  Lists lists;
  for (int64_t i = 0; i < count; ++i) {
    lists.from.push_back(7 * i % num_from);
    lists.to.push_back((5 * i * i + i) % (num_rows + 1) - 1); // some are nowhere
    lists.factor_of.push_back(i % num_factors);
  }
  return lists;
}

template <typename T>
void expect_sums(int64_t count, int64_t row_length, int64_t num_rows) {
  constexpr auto kDtype = c10::CppTypeToScalarType<T>::value;
  const at::Tensor rows = at::randn({11, row_length}, kDtype);
  const at::Tensor factors = at::randn({3}, kDtype);
  const Lists lists = random_lists(count, num_rows, rows.size(0), factors.size(0));
  const at::Tensor table = at::full({num_rows, row_length}, NAN, kDtype);
  run(RowAdds<T>{
      .row_length = row_length,
      .num_rows = num_rows,
      .table = table.mutable_data_ptr<T>(),
      .is_from_zero = true,
      .count = count,
      .rows = rows.const_data_ptr<T>(),
      .from = lists.from.data(),
      .to = lists.to.data(),
      .factors = factors.const_data_ptr<T>(),
      .factor_of = lists.factor_of.data()});
  const at::Tensor expected = at::zeros_like(table);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; lists.to[i] >= 0 && j < row_length; ++j) {
      T& sum = expected.mutable_data_ptr<T>()[lists.to[i] * row_length + j];
      sum = std::fma(
          factors.const_data_ptr<T>()[lists.factor_of[i]],
          rows.const_data_ptr<T>()[lists.from[i] * row_length + j],
          sum);
    }
  }
  EXPECT_TRUE(table.equal(expected)) << count << " rows of " << row_length;
}

TEST(RowAddsTest, MultiplyAndAddAtOnceInOrder) {
  for (const int64_t row_length : {1, 3, 15, 16, 17, 64, 100}) {
    for (const int64_t count : {1, 10, 300}) {
      expect_sums<float>(count, row_length, 5);
      expect_sums<double>(count, row_length, 5);
    }
  }
}

TEST(RowAddsTest, HaveTheSameBitsOnSeveralThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  expect_sums<float>(5000, 40, 700);
  at::set_num_threads(threads);
}

TEST(RowAddsTest, AddToWhatIsThere) {
  const at::Tensor table = at::randn({4, 6});
  const at::Tensor before = table.clone();
  const at::Tensor rows = at::randn({2, 6});
  const std::vector<int64_t> to{3, 1};
  run(RowAdds<float>{
      .row_length = 6,
      .num_rows = 4,
      .table = table.mutable_data_ptr<float>(),
      .is_from_zero = false,
      .count = 2,
      .rows = rows.const_data_ptr<float>(),
      .to = to.data()});
  before[3] += rows[0];
  before[1] += rows[1];
  EXPECT_TRUE(table.equal(before));
}

} // namespace
} // namespace lazyplug::kernels
