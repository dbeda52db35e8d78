// The pending program as a copy (backend/execution/pending_slice.cpp).
#include "backend/execution/pending_slice.h"
#include "lowering/ir/dump.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class ProgramTest : public BackendTest {
 protected:
  std::string text(const std::vector<at::Tensor>& tensors) {
    const TraceSlice slice = pending_slice(context_, tensors, /*with_data=*/false);
    return to_text(slice.trace, slice.roots);
  }

  const at::Tensor x = to_lazy(iota({2, 3}));
};

TEST_F(ProgramTest, HasWhatTheTensorsNeedAndRunsNothing) {
  const at::Tensor y = x + x;
  const at::Tensor other = x * x;
  const std::string shown = text({y});
  EXPECT_TRUE(contains(shown, "aten::add.Tensor(%0, %0, 1)")) << shown;
  EXPECT_FALSE(contains(shown, "aten::mul")) << shown;
  EXPECT_EQ(state_of(y), State::kPending);
}

TEST_F(ProgramTest, LeavesKnowTheirTensorAndWhetherTheyAreNumbers) {
  const TraceSlice slice = pending_slice(context_, {x * at::scalar_tensor(2.0), x}, /*with_data=*/true);
  ASSERT_EQ(slice.trace.leaves().size(), 2);
  EXPECT_EQ(slice.trace.leaf_info(0).tensor_id, static_cast<int64_t>(storage_of(x).id()));
  EXPECT_FALSE(slice.trace.leaf_info(0).read_only);
  EXPECT_EQ(slice.trace.leaf_info(1).tensor_id, DeviceDataInfo::kNoTensor);
  EXPECT_TRUE(slice.trace.leaf_info(1).read_only);
  EXPECT_TRUE(at::equal(slice.trace.leaves()[0], iota({2, 3})));
}

TEST_F(ProgramTest, TensorsThatAreNotPendingAreLeavesOfTheCopyOnly) {
  const at::Tensor fresh = at::empty({2}, on_lazy());
  const TraceSlice slice = pending_slice(context_, {x, x.t(), fresh}, /*with_data=*/true);
  EXPECT_EQ(context_.pending_nodes(), 0);
  EXPECT_EQ(
      to_text(slice.trace, slice.roots),
      "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
      "%1 = aten::alias(%0[Float[3, 2] strides=[1, 3]])  # Float[3, 2] strides=[1, 3]\n"
      "%2 = empty()  # Float[2] strides=[1]\n"
      "return %0, %1, %2\n");
}

TEST_F(ProgramTest, WaitsForDataThatIsBeingComputed) {
  const at::Tensor y = x + 1;
  context_.flush();
  const at::Tensor z = y + 1; // its leaf may still be computed
  const TraceSlice slice = pending_slice(context_, {z}, /*with_data=*/true);
  EXPECT_TRUE(at::equal(slice.trace.leaves()[0], iota({2, 3}) + 1));
  expect_equal(z, iota({2, 3}) + 2);
}

TEST_F(ProgramTest, FailedTensorsRaiseTheirError) {
  const at::Tensor failed = test_ops::fail(x);
  error_of([&] { context_.synchronize(); });
  EXPECT_THROW(pending_slice(context_, {failed}, /*with_data=*/true), c10::IndexError);
}

} // namespace
} // namespace lazyplug
