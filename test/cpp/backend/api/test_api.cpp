#include "backend/api/api.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

#include <atomic>
#include <thread>

namespace lazyplug {
namespace {

// C++ alone knows the device by this name; Python renames it.
const std::string kDevice = c10::Device(kLazyDevice).str();

class ApiTest : public BackendTest {
 protected:
  const at::Tensor x = to_lazy(iota({2, 3}));
};

TEST_F(ApiTest, MarkStepRunsTheNamedDevices) {
  const at::Tensor here = x + 1;
  const at::Tensor there = to_lazy(iota({2}), 1) + 1;
  mark_step(kDevice + ":1", {}, false);
  EXPECT_EQ(state_of(here), State::kPending);
  EXPECT_EQ(state_of(there), State::kSubmitted);
  mark_step("", {kDevice + ":0", kDevice + ":1"}, false);
  EXPECT_EQ(state_of(here), State::kSubmitted);
}

TEST_F(ApiTest, MarkStepWithoutANameMeansTheCurrentDevice) {
  const at::Tensor here = x + 1;
  set_device(1);
  mark_step("", {}, false);
  set_device(0);
  EXPECT_EQ(state_of(here), State::kPending);
  mark_step("", {}, false);
  EXPECT_EQ(state_of(here), State::kSubmitted);
}

TEST_F(ApiTest, MarkStepRaisesOnlyIfItWaits) {
  at::Tensor failed = test_ops::fail(x);
  EXPECT_EQ(error_of([&] { mark_step("", {}, false); }), "none");
  EXPECT_THROW(mark_step("", {}, true), c10::IndexError);
}

TEST_F(ApiTest, WaitMeansAllDevicesUnlessNamed) {
  const at::Tensor here = x + 1;
  const at::Tensor there = to_lazy(iota({2}), 1) + 1;
  wait_device_ops({kDevice + ":1"});
  EXPECT_EQ(state_of(here), State::kPending);
  wait_device_ops({});
  EXPECT_EQ(state_of(here), State::kSubmitted);
  EXPECT_EQ(live_nodes(), 0);
}

TEST_F(ApiTest, OtherDevicesAreRefused) {
  EXPECT_TRUE(contains(error_of([] { mark_step("cpu", {}, true); }), "expected a lazy device, got 'cpu'"));
  EXPECT_THROW(wait_device_ops({kDevice + ":7"}), c10::Error);
}

TEST_F(ApiTest, SyncMultiMakesTensorsAvailable) {
  const at::Tensor y = x + 1;
  sync_multi({y}, {}, true);
  EXPECT_EQ(state_of(y), State::kAvailable);
  EXPECT_TRUE(contains(error_of([] { sync_multi({at::ones({2})}, {}, true); }), "expected a lazy tensor"));
  EXPECT_THROW(sync_multi({test_ops::fail(x)}, {}, true), c10::IndexError);
}

TEST_F(ApiTest, TensorIdsAreThoseOfStorages) {
  EXPECT_EQ(tensor_id(x), tensor_id(x.t()));
  EXPECT_NE(tensor_id(x), tensor_id(x + 1));
  EXPECT_THROW(tensor_id(at::Tensor()), c10::Error);
}

TEST_F(ApiTest, TextAndLiveNodesShowWhatIsPending) {
  EXPECT_EQ(live_nodes(), 0);
  const at::Tensor y = x + 1;
  EXPECT_GE(live_nodes(), 2);
  EXPECT_TRUE(contains(tensors_text({y}), "aten::add")) << tensors_text({y});
  EXPECT_EQ(state_of(y), State::kPending);
}

TEST_F(ApiTest, MaterializeLeavesOtherTensorsAlone) {
  const at::Tensor y = x + 1;
  materialize(at::ones({2}));
  materialize(at::ones({2}).storage());
  EXPECT_EQ(state_of(y), State::kPending);
  materialize(y.storage());
  EXPECT_EQ(state_of(y), State::kAvailable);
}

// For the thread sanitizer: the state is written by whoever uses the tensor.
TEST_F(ApiTest, AnyThreadMayAskWhetherATensorIsPending) {
  at::Tensor y = x + 1;
  std::atomic<bool> done{false};
  std::thread asks([&] {
    while (!done) {
      is_pending(y);
      is_ready(y);
    }
  });
  for (int i = 0; i < 100; ++i) {
    y.add_(x);
    materialize(y);
    EXPECT_FALSE(is_pending(y));
  }
  done = true;
  asks.join();
  y.add_(x);
  EXPECT_TRUE(is_pending(y));
}

} // namespace
} // namespace lazyplug
