// Whoever waits for the device's mutex may hold Python's lock, and an error may be Python's: so errors are raised and
// freed without the mutex.
#include "backend/api/api.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/execution/pending_slice.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

#include <future>
#include <thread>

namespace lazyplug {
namespace {

constexpr std::chrono::seconds kPatience(5); // until the mutex is taken to be held

// Asked on another thread, because this one may be who holds it.
bool is_mutex_free() {
  auto answer = std::make_shared<std::promise<void>>();
  auto answered = answer->get_future();
  std::thread([answer] {
    DeviceContext::get(0).pending_nodes();
    answer->set_value();
  }).detach();
  return answered.wait_for(kPatience) == std::future_status::ready;
}

int num_raised = 0;
int num_raised_under_the_mutex = 0;
int num_freed = 0;
int num_freed_under_the_mutex = 0;

// Tells of its death.
struct Mine : std::runtime_error {
  Mine() : std::runtime_error("mine") {}
  std::shared_ptr<void> life{nullptr, [](void*) {
                               ++num_freed;
                               num_freed_under_the_mutex += is_mutex_free() ? 0 : 1;
                             }};
};

void note_raise(const std::exception_ptr& /*error*/) {
  ++num_raised;
  num_raised_under_the_mutex += is_mutex_free() ? 0 : 1;
}

class ErrorsUnderLockTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    num_raised = num_raised_under_the_mutex = num_freed = num_freed_under_the_mutex = 0;
    set_python_hooks({.rethrow_copy = note_raise});
    test_ops::raise_instead(std::make_exception_ptr(Mine()));
  }
  void TearDown() override {
    test_ops::raise_instead(nullptr);
    set_python_hooks({});
    EXPECT_EQ(num_raised_under_the_mutex, 0);
    EXPECT_EQ(num_freed_under_the_mutex, 0);
  }
  // Computes everything; the error is seen, and only results hold it.
  void run() {
    EXPECT_THROW(context_.synchronize(), Mine);
    test_ops::raise_instead(nullptr);
    EXPECT_EQ(num_freed, 0);
    num_raised = 0;
  }

  const at::Tensor x = to_lazy(iota({2, 3}));
};

TEST_F(ErrorsUnderLockTest, RaisedByUses) {
  const at::Tensor failed = test_ops::fail(x);
  run();
  EXPECT_THROW(failed + x, Mine);
  EXPECT_THROW(failed.cpu(), Mine);
  EXPECT_THROW(failed.add_(x), Mine);
  EXPECT_THROW(failed.mutable_data_ptr(), Mine);
  EXPECT_THROW(tensors_text({failed}), Mine);
  EXPECT_EQ(num_raised, 5);
}

TEST_F(ErrorsUnderLockTest, RaisedByGraphsOverFailedLeaves) {
  test_ops::Gate gate;
  const at::Tensor failed = test_ops::fail(test_ops::wait(x));
  context_.flush();
  const at::Tensor reader = failed + x; // it is not known yet
  gate.open();
  EXPECT_THROW(pending_slice(context_, {reader}, /*with_data=*/true), Mine);
  EXPECT_EQ(num_raised, 1);
}

TEST_F(ErrorsUnderLockTest, FreedWithTheTensor) {
  at::Tensor failed = test_ops::fail(x);
  run();
  failed.reset();
  EXPECT_EQ(num_freed, 1);
}

TEST_F(ErrorsUnderLockTest, FreedByOverwriting) {
  const at::Tensor failed = test_ops::fail(x);
  run();
  context_.adopt(storage_of(failed), iota({2, 3}).storage());
  EXPECT_EQ(num_freed, 1);
  expect_equal(failed, iota({2, 3}));
}

TEST_F(ErrorsUnderLockTest, FreedByOverwritingWhatNobodyHasLookedAt) {
  const at::Tensor failed = test_ops::fail(x);
  EXPECT_THROW(DeviceContext::materialize(storage_of(failed)), Mine);
  const at::Tensor late = test_ops::fail(x);
  run();
  context_.adopt(storage_of(late), iota({2, 3}).storage());
  context_.adopt(storage_of(failed), iota({2, 3}).storage());
  EXPECT_EQ(num_freed, 1);
}

TEST_F(ErrorsUnderLockTest, FreedByResizing) {
  const at::Tensor failed = test_ops::fail(to_lazy(at::empty({0})));
  run();
  EXPECT_THROW(DeviceContext::materialize(storage_of(failed)), Mine);
  DeviceContext::resize(storage_of(failed), 8);
  EXPECT_EQ(num_freed, 1);
}

TEST_F(ErrorsUnderLockTest, FreedByTheNextUseOfWhatCouldNotBeWritten) {
  at::Tensor written = x + x;
  test_ops::fail_(written);
  run();
  expect_equal(written, iota({2, 3}) * 2);
  EXPECT_EQ(num_freed, 1);
  EXPECT_EQ(num_raised, 0);
}

} // namespace
} // namespace lazyplug
