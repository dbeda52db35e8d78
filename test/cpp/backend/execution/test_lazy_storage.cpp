#include "backend/execution/lazy_storage.h"
#include "backend/execution/pending_slice.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class LazyStorageTest : public BackendTest {
 protected:
  const at::Tensor x = to_lazy(iota({2, 3}));
};

TEST_F(LazyStorageTest, IsBehindEveryTensorOfTheDeviceAndNoOther) {
  EXPECT_TRUE(is_lazy(x));
  EXPECT_TRUE(is_lazy(x.t()));
  EXPECT_TRUE(is_lazy(x + x));
  EXPECT_FALSE(is_lazy(at::ones({2})));
  EXPECT_FALSE(is_lazy(at::Tensor()));
  EXPECT_EQ(LazyStorageImpl::of(at::ones({2})), nullptr);
  EXPECT_EQ(LazyStorageImpl::of(at::empty({2}, at::kMeta)), nullptr);
}

TEST_F(LazyStorageTest, PlainStoragesOfTheDeviceAreNotTakenForLazy) {
  float memory[2] = {1, 2};
  const c10::Storage plain = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      sizeof(memory),
      c10::DataPtr(memory, lazy_device(0)),
      nullptr,
      false);
  EXPECT_EQ(LazyStorageImpl::of(plain), nullptr);
  EXPECT_EQ(LazyStorageImpl::of(x.storage()), &storage_of(x));
}

TEST_F(LazyStorageTest, IdsAreUniqueAndSharedByViews) {
  EXPECT_NE(storage_of(x).id(), storage_of(x + x).id());
  EXPECT_EQ(storage_of(x).id(), storage_of(x.t()).id());
}

TEST_F(LazyStorageTest, KnowsItsDevice) {
  const at::Tensor other = at::empty({2}, at::TensorOptions(lazy_device(1)));
  EXPECT_EQ(&storage_of(other).context(), &DeviceContext::get(1));
  EXPECT_EQ(other.storage().device(), lazy_device(1));
}

// ---- states ----

TEST_F(LazyStorageTest, NewStorageIsUnallocatedUntilItsFirstUse) {
  const at::Tensor fresh = at::empty({4}, on_lazy());
  EXPECT_EQ(state_of(fresh), State::kUnallocated);
  EXPECT_EQ(fresh.storage().nbytes(), 16);
  fresh.fill_(3);
  EXPECT_EQ(state_of(fresh), State::kPending);
  expect_equal(fresh, at::full({4}, 3.F));
  EXPECT_EQ(state_of(fresh), State::kAvailable);
}

TEST_F(LazyStorageTest, UnallocatedStorageGetsMemoryWhenItsPointerIsRead) {
  const at::Tensor fresh = at::empty({4}, on_lazy());
  EXPECT_NE(fresh.mutable_data_ptr(), nullptr);
  EXPECT_EQ(state_of(fresh), State::kAvailable);
  EXPECT_EQ(count("Flush"), 0);
}

TEST_F(LazyStorageTest, ResultOfAnOpIsPending) {
  const at::Tensor y = x + x;
  EXPECT_EQ(state_of(y), State::kPending);
  EXPECT_EQ(state_of(x), State::kAvailable) << "reading changes nothing";
  EXPECT_EQ(count("Flush"), 0);
}

TEST_F(LazyStorageTest, ReadingTheMutablePointerMakesItAvailable) {
  const at::Tensor y = x + x;
  const auto* data = static_cast<float*>(y.mutable_data_ptr());
  EXPECT_EQ(state_of(y), State::kAvailable);
  EXPECT_EQ(data[5], 10);
  EXPECT_EQ(count("Flush"), 1);
}

TEST_F(LazyStorageTest, ViewsShareTheRealPointer) {
  const at::Tensor y = x + x;
  const at::Tensor row = y.select(0, 1);
  const auto* data = static_cast<float*>(row.mutable_data_ptr());
  EXPECT_EQ(data, static_cast<float*>(y.mutable_data_ptr()) + 3);
  EXPECT_EQ(y.data_ptr(), y.storage().data());
}

TEST_F(LazyStorageTest, WrittenStorageIsPendingAgainAndForgetsItsPointer) {
  x.mutable_data_ptr();
  x.add_(x);
  EXPECT_EQ(state_of(x), State::kPending);
  EXPECT_EQ(static_cast<float*>(x.mutable_data_ptr())[5], 10) << "not the stale pointer";
  EXPECT_EQ(state_of(x), State::kAvailable);
}

TEST_F(LazyStorageTest, WriteInPlaceKeepsTheAddress) {
  at::Tensor y = x + x;
  const void* address = y.mutable_data_ptr();
  for (int i = 0; i < 3; ++i) {
    y.mul_(2);
    y.select(0, 0).add_(1);
    EXPECT_EQ(y.mutable_data_ptr(), address) << i;
  }
}

// What the pending trace reads of `x`, which the trace then does.
class LeafTest : public LazyStorageTest {
 protected:
  at::Tensor leaf_of(const at::Tensor& result) {
    const at::Tensor leaf = pending_slice(context_, {result}, /*with_data=*/true).trace.leaves().front();
    context_.finish();
    return leaf;
  }
  const c10::TensorImpl* leaf_impl_of(const at::Tensor& result) {
    return leaf_of(result).unsafeGetTensorImpl();
  }
};

TEST_F(LeafTest, TracesShareOneTensorOfTheMemory) {
  const auto* first = leaf_impl_of(x + x);
  EXPECT_EQ(leaf_impl_of(x * x), first);
  const at::Tensor transposed = leaf_of(x.t() + 1);
  EXPECT_EQ(transposed.sizes(), x.t().sizes());
  EXPECT_EQ(transposed.strides(), x.t().strides());
}

TEST_F(LeafTest, ATensorThatSomebodyHoldsIsNotUsedAgain) {
  at::Tensor first = leaf_of(x + x);
  EXPECT_NE(leaf_impl_of(x * x), first.unsafeGetTensorImpl());
  const auto* kept = first.unsafeGetTensorImpl();
  first.t_();
  first.reset();
  EXPECT_NE(leaf_impl_of(x * x), kept) << "it does not lie as it did";
}

TEST_F(LeafTest, NewContentsAreAnotherLeaf) {
  leaf_of(x + x);
  x.copy_(iota({2, 3}) + 1);
  expect_equal(x + x, (iota({2, 3}) + 1) * 2);
  x.add_(1);
  EXPECT_EQ(leaf_of(x * 1).const_data_ptr(), x.mutable_data_ptr());
}

TEST_F(LeafTest, IsNobodyWhoReadsTheMemory) {
  leaf_of(x + x);
  const at::Tensor y = to_lazy(iota({3}));
  const at::Tensor pending = y * y;
  DeviceContext::materialize_for_write(storage_of(x));
  EXPECT_EQ(state_of(pending), State::kPending);
}

TEST_F(LazyStorageTest, FailedStorageRaisesItsErrorWheneverItIsRead) {
  const at::Tensor failed = test_ops::fail(x);
  EXPECT_EQ(state_of(failed), State::kPending) << "recording does not fail";
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(failed.cpu(), c10::IndexError);
    EXPECT_EQ(state_of(failed), State::kFailed);
  }
  EXPECT_THROW(failed.mutable_data_ptr(), c10::IndexError);
  EXPECT_THROW(failed + x, c10::IndexError);
}

TEST_F(LazyStorageTest, FailedStorageCanBeGivenNewContents) {
  at::Tensor failed = test_ops::fail(x);
  EXPECT_THROW(failed.cpu(), c10::IndexError);
  failed.copy_(at::ones({2, 3}));
  EXPECT_EQ(state_of(failed), State::kAvailable);
  expect_equal(failed, at::ones({2, 3}));
}

// ---- storages made behind our back ----

TEST_F(LazyStorageTest, GenericStorageFactoriesMakeLazyStorages) {
  const c10::Storage storage(
      c10::make_storage_impl(
          c10::StorageImpl::use_byte_size_t(),
          c10::SymInt(8),
          c10::DataPtr(nullptr, lazy_device(1)),
          nullptr,
          true,
          lazy_device(1)));
  ASSERT_NE(LazyStorageImpl::of(storage), nullptr);
  EXPECT_EQ(storage.nbytes(), 8);
}

} // namespace
} // namespace lazyplug
