#include "backend/execution/future_contents.h"

#include <thread>

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class FutureContentsTest : public testing::Test {
 protected:
  FutureContentsPtr submit(const at::Tensor& contents, const FailurePtr& failure = nullptr) {
    auto data = c10::make_intrusive<FutureContents>(worker_, ++ticket_);
    worker_.submit(
        [this, data, contents, failure] {
          data->set(contents.defined() ? contents.storage() : c10::Storage(), failure);
          ran_on_ = std::this_thread::get_id();
        },
        Worker::By::kAnyone);
    return data;
  }

  std::thread::id ran_on_;
  Worker::Ticket ticket_ = 0;
  Worker worker_{"test"};
};

TEST_F(FutureContentsTest, WhoWaitsForItRunsTheJobsUpToItsOwn) {
  const FutureContentsPtr first = submit(at::ones({2}));
  const FutureContentsPtr second = submit(at::ones({2}));
  const FutureContentsPtr third = submit(at::ones({2}));
  EXPECT_FALSE(first->is_ready());
  second->wait();
  EXPECT_TRUE(first->is_ready());
  EXPECT_TRUE(second->is_ready());
  EXPECT_FALSE(third->is_ready());
  EXPECT_EQ(ran_on_, std::this_thread::get_id());
}

TEST_F(FutureContentsTest, HoldsWhatItsJobComputed) {
  const at::Tensor contents = at::ones({2});
  const FutureContentsPtr data = submit(contents);
  data->wait();
  data->wait(); // at once
  EXPECT_EQ(data->memory.data(), contents.const_data_ptr());
  EXPECT_FALSE(data->failure);
}

TEST_F(FutureContentsTest, AFailureMayLeaveMemory) {
  const auto failure = std::make_shared<Failure>(std::make_exception_ptr(std::runtime_error("failed")));
  const FutureContentsPtr lost = submit(at::Tensor(), failure);
  const FutureContentsPtr kept = submit(at::ones({2}), failure); // only a write to it failed
  kept->wait();
  EXPECT_FALSE(lost->memory);
  EXPECT_TRUE(kept->memory);
  EXPECT_EQ(lost->failure, kept->failure);
  EXPECT_FALSE(failure->seen);
}

} // namespace
} // namespace lazyplug
