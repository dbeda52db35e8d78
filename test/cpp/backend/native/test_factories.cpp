#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeFactories : public BackendTest {
 protected:
  // Factories make tensors without contents: there is nothing to record.
  void TearDown() override {
    EXPECT_EQ(count("NodesRecorded"), 0);
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
};

TEST_F(NativeFactories, EmptyHasShapeTypeAndDevice) {
  const at::Tensor tensor = at::empty({2, 3}, at::TensorOptions(lazy_device(1)).dtype(at::kHalf));
  EXPECT_EQ(tensor.sizes(), c10::IntArrayRef({2, 3}));
  EXPECT_EQ(tensor.dtype(), at::kHalf);
  EXPECT_EQ(tensor.device(), lazy_device(1));
  EXPECT_EQ(tensor.storage().nbytes(), 12);
  EXPECT_EQ(state_of(tensor), State::kUnallocated);
}

TEST_F(NativeFactories, NoIndexMeansTheCurrentDevice) {
  set_device(1);
  EXPECT_EQ(at::empty({2}, c10::Device(kLazyDevice)).device(), lazy_device(1));
  set_device(0);
  EXPECT_EQ(at::empty({2}, c10::Device(kLazyDevice)).device(), lazy_device(0));
}

TEST_F(NativeFactories, MemoryFormats) {
  const auto empty = [](c10::IntArrayRef sizes, at::MemoryFormat format, at::Device device) {
    return at::empty(sizes, at::TensorOptions(device).memory_format(format)).strides().vec();
  };
  for (const auto& [sizes, format] : std::vector<std::pair<std::vector<int64_t>, at::MemoryFormat>>{
           {{2, 3, 4, 5}, at::MemoryFormat::ChannelsLast},
           {{2, 3, 4, 5, 6}, at::MemoryFormat::ChannelsLast3d},
           {{2, 3}, at::MemoryFormat::Contiguous}}) {
    EXPECT_EQ(empty(sizes, format, lazy_device(0)), empty(sizes, format, at::kCPU));
  }
  EXPECT_THROW(empty({2}, at::MemoryFormat::Preserve, lazy_device(0)), c10::Error);
}

TEST_F(NativeFactories, EmptyStridedReservesWhatItsStridesReach) {
  const at::Tensor tensor = at::empty_strided({2, 3}, {10, 2}, on_lazy());
  EXPECT_EQ(tensor.strides(), c10::IntArrayRef({10, 2}));
  EXPECT_EQ(tensor.storage().nbytes(), (10 + 4 + 1) * 4);
}

TEST_F(NativeFactories, EmptyLikeKeepsStrides) {
  const at::Tensor tensor = at::empty({2, 3}, on_lazy()).t();
  EXPECT_EQ(at::empty_like(tensor).strides(), tensor.strides());
}

TEST_F(NativeFactories, MistakesRaise) {
  EXPECT_EQ(error_of([] { at::empty({2, -1}, on_lazy()); }), error_of([] { at::empty({2, -1}); }));
  EXPECT_TRUE(contains(error_of([] { at::empty({2}, on_lazy().pinned_memory(true)); }), "can be pinned"));
  EXPECT_THROW(at::empty({2}, at::TensorOptions(c10::Device(kLazyDevice, 2))), c10::Error);
}

} // namespace
} // namespace lazyplug
