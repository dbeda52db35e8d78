#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeMetadata : public BackendTest {
 protected:
  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(NativeMetadata, ResizeKeepsTheLeadingContents) {
  at::Tensor y = x * 2;
  y.resize_({3, 3});
  EXPECT_EQ(y.storage().nbytes(), 36);
  expect_equal(y.slice(0, 0, 2), cpu * 2);
  y.resize_({2});
  EXPECT_EQ(y.storage().nbytes(), 36) << "storages do not shrink";
  expect_equal(y, (cpu * 2).view({6}).slice(0, 0, 2));
}

TEST_F(NativeMetadata, ResizeToTheSameSizeKeepsStridesAndRunsNothing) {
  at::Tensor y = (x * 2).t();
  y.resize_({3, 2});
  EXPECT_EQ(y.strides(), c10::IntArrayRef({1, 3}));
  EXPECT_EQ(state_of(y), State::kPending);
}

TEST_F(NativeMetadata, ResizeOfAViewCountsFromItsOffset) {
  at::Tensor row = x.select(0, 1);
  row.resize_({4});
  EXPECT_EQ(x.storage().nbytes(), (3 + 4) * 4);
  expect_equal(row.slice(0, 0, 3), cpu.select(0, 1));
  expect_equal(x, cpu);
}

TEST_F(NativeMetadata, ResizeToAMemoryFormat) {
  at::Tensor y = at::empty({0}, on_lazy());
  y.resize_({2, 3, 4, 5}, at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_THROW(y.resize_({2}, at::MemoryFormat::Preserve), c10::Error);
}

TEST_F(NativeMetadata, ResizeToImpossibleSizesRaises) {
  at::Tensor y = to_lazy(iota({2}));
  EXPECT_THROW(y.resize_({-1}), c10::Error);
  EXPECT_EQ(error_of([&] { y.resize_({2, 3}, at::MemoryFormat::ChannelsLast); }), error_of([&] {
              iota({2}).resize_({2, 3}, at::MemoryFormat::ChannelsLast);
            }));
  expect_equal(y, iota({2}));
}

TEST_F(NativeMetadata, SetToATensorSharesItsStorage) {
  at::Tensor y = at::empty({0}, on_lazy());
  const at::Tensor source = (x * 2).t();
  y.set_(source);
  EXPECT_TRUE(y.is_set_to(source));
  EXPECT_FALSE(y.is_set_to(x));
  EXPECT_EQ(&storage_of(y), &storage_of(source));
  EXPECT_EQ(state_of(y), State::kPending);
  y.add_(1);
  expect_equal(source, (cpu * 2).t() + 1);
}

TEST_F(NativeMetadata, SetToAStorage) {
  at::Tensor y = at::empty({0}, on_lazy());
  y.set_(x.storage());
  expect_equal(y, cpu.view({6}));
  y.set_(x.storage(), 1, {2, 2}, {1, 3});
  expect_equal(y, cpu.as_strided({2, 2}, {1, 3}, 1));
}

TEST_F(NativeMetadata, SetBeyondTheStorageMakesItGrow) {
  at::Tensor y = at::empty({0}, on_lazy());
  y.set_(x.storage(), 4, {4}, {1});
  EXPECT_EQ(x.storage().nbytes(), 8 * 4);
  expect_equal(y.slice(0, 0, 2), cpu.view({6}).slice(0, 4));
}

TEST_F(NativeMetadata, SetToNothing) {
  at::Tensor y = x * 2;
  y.set_();
  EXPECT_EQ(y.sizes(), c10::IntArrayRef({0}));
  EXPECT_NE(&storage_of(y), &storage_of(x));
}

TEST_F(NativeMetadata, SetToAnotherDeviceRaises) {
  at::Tensor y = at::empty({0}, on_lazy());
  EXPECT_THROW(y.set_(to_lazy(cpu, 1)), c10::Error);
  EXPECT_THROW(y.set_(cpu), c10::Error);
}

TEST_F(NativeMetadata, SetToAnotherTypeIsWhatItIsOnTheCpu) {
  at::Tensor host = at::empty({0});
  at::Tensor lazy = at::empty({0}, on_lazy());
  EXPECT_EQ(error_of([&] { lazy.set_(at::empty({2}, on_lazy(at::kInt))); }), error_of([&] {
              host.set_(at::empty({2}, at::kInt));
            }));
}

TEST_F(NativeMetadata, ResizeOutputResizes) {
  const at::Tensor y = at::empty({0}, on_lazy());
  at::_resize_output_(y, {2, 3}, lazy_device(0));
  EXPECT_EQ(y.sizes(), c10::IntArrayRef({2, 3}));
  EXPECT_EQ(y.storage().nbytes(), 24);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(NativeMetadata, InPlaceViewsChangeMetadataOnly) {
  at::Tensor y = x * 1;
  reset_metrics();
  y.t_();
  y.unsqueeze_(0);
  y.as_strided_({2}, {1}, 1);
  EXPECT_EQ(count("NodesRecorded"), 0);
  expect_equal(y, cpu.view({6}).slice(0, 1, 3));
}

TEST_F(NativeMetadata, DataOfACpuTensorMayMoveToTheDevice) {
  at::Tensor parameter = iota({2, 3});
  const at::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  EXPECT_TRUE(at::_has_compatible_shallow_copy_type(parameter, x));
  EXPECT_FALSE(at::_has_compatible_shallow_copy_type(x, cpu.to_sparse()));
  parameter.set_data(x);
  EXPECT_EQ(parameter.unsafeGetTensorImpl(), impl);
  EXPECT_EQ(parameter.device(), lazy_device(0));
  expect_equal(parameter * 2, cpu * 2);
}

} // namespace
} // namespace lazyplug
