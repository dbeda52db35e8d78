#include "backend/ops/borrowed_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(BorrowedTensorsTest, TensorsHaveNoOtherOwner) {
  const at::Tensor first = at::ones({2});
  const at::Tensor second = at::zeros({3});
  {
    BorrowedTensors borrowed;
    for (int i = 0; i < 20; ++i) { // the memory for them grows
      borrowed.add(i % 2 == 0 ? first : second);
    }
    const BorrowedTensors moved = std::move(borrowed);
    const at::TensorList tensors = moved;
    ASSERT_EQ(tensors.size(), 20);
    EXPECT_TRUE(tensors[18].is_same(first));
    EXPECT_TRUE(tensors[19].is_same(second));
    EXPECT_EQ(first.use_count(), 1);
    EXPECT_EQ(second.use_count(), 1);
  }
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(first.sum().item<float>(), 2);
}

TEST(BorrowedTensorsTest, AssignmentKeepsBothSidesWhole) {
  const at::Tensor first = at::ones({2});
  const at::Tensor second = at::zeros({3});
  BorrowedTensors left;
  left.add(first);
  BorrowedTensors right;
  right.add(second);
  left = std::move(right);
  EXPECT_TRUE(at::TensorList(left)[0].is_same(second));
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(second.use_count(), 1);
}

} // namespace
} // namespace lazyplug
