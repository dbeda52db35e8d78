#include "lowering/calls/distance_kernel.h"

#include <ATen/ATen.h>

#include <limits>

#include "kernels/blas_kernels.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/node_test.h"

namespace lazyplug {
namespace {

constexpr const char* kDistance = "aten::_euclidean_dist";

bool is_distance_here(const at::Tensor& a, const at::Tensor& b) {
  c10::Stack ours{a, b};
  if (!run_exact_kernel(make_op(kDistance), ours)) {
    EXPECT_EQ(ours.size(), 2);
    return false;
  }
  c10::Stack expected{a, b};
  make_op(kDistance).handle().callBoxed(expected);
  EXPECT_EQ(ours.size(), 1);
  EXPECT_TRUE(has_same_bits(ours[0].toTensor(), expected[0].toTensor())) << a.sizes() << b.sizes();
  return true;
}

TEST(DistanceKernelTest, HasTheBitsOfPyTorch) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t size : {1, 2, 3, 7, 8, 16, 33, 64, 100}) {
      for (const auto& [rows, columns] : {std::pair{30, 30}, {1, 40}, {40, 1}, {77, 5}, {3, 101}, {250, 8}}) {
        const at::Tensor a = at::randn({rows, size}, dtype);
        const at::Tensor b = at::randn({columns, size}, dtype);
        b[0].copy_(a[0]);
        EXPECT_TRUE(is_distance_here(a, b)) << size << " numbers of " << rows << " and " << columns;
      }
    }
  }
}

// Of more distances than one thread computes: where products of that size are ours.
TEST(DistanceKernelTest, SoHaveManyDistances) {
  const bool is_ours = kernels::has_gemm(kernels::blas_kernels(), {220, 200, 66, /*b_is_by_rows=*/false});
  EXPECT_EQ(is_distance_here(at::randn({220, 64}), at::randn({200, 64})), is_ours);
}

TEST(DistanceKernelTest, SoHaveSpecialNumbers) {
  const at::Tensor a = at::randn({30, 4});
  for (const float special : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -0.0F}) {
    const at::Tensor b = at::randn({30, 4});
    b[3][1] = special;
    c10::Stack ours{a, b};
    ASSERT_TRUE(run_exact_kernel(make_op(kDistance), ours));
    c10::Stack expected{a, b};
    make_op(kDistance).handle().callBoxed(expected);
    EXPECT_TRUE(at::allclose(ours[0].toTensor(), expected[0].toTensor(), 0, 0, /*equal_nan=*/true)) << special;
  }
  EXPECT_TRUE(is_distance_here(at::zeros({30, 2}), at::zeros({30, 2})));
}

TEST(DistanceKernelTest, LeavesTheRestToPyTorch) {
  const at::Tensor points = at::randn({30, 4});
  EXPECT_TRUE(is_distance_here(points, points));
  EXPECT_FALSE(is_distance_here(points.t().contiguous().t(), points));
  EXPECT_FALSE(is_distance_here(at::randn({2, 30, 4}), at::randn({2, 30, 4})));
  EXPECT_FALSE(is_distance_here(points.slice(0, 0, 0), points));
  EXPECT_FALSE(is_distance_here(at::randn({40'000, 2}), points));
}

} // namespace
} // namespace lazyplug
