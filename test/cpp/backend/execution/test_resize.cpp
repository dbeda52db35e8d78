#include "backend/execution/resize.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class ResizeTest : public BackendTest {
 protected:
  static void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, int64_t offset = 0) {
    Geometry geometry = Geometry::contiguous(at::kFloat, sizes);
    geometry.offset = offset;
    resize_to(*tensor.unsafeGetTensorImpl(), geometry);
  }
};

TEST_F(ResizeTest, GrowsTheStorageWhereItMust) {
  const at::Tensor x = to_lazy(iota({4}));
  resize(x, {3}, 5);
  EXPECT_EQ(x.storage().nbytes(), 8 * 4);
  EXPECT_EQ(x.storage_offset(), 5);
  resize(x, {4});
  expect_equal(x, iota({4}));
}

TEST_F(ResizeTest, LeavesALargeEnoughStorageAsItIs) {
  const at::Tensor x = to_lazy(iota({4})) * 2;
  resize(x, {2});
  EXPECT_EQ(state_of(x), State::kPending);
  EXPECT_EQ(x.storage().nbytes(), 4 * 4);
  expect_equal(x, iota({2}) * 2);
}

} // namespace
} // namespace lazyplug
