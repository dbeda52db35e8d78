#include "device/worker.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

#include "common/fail_point.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {

class WorkerTest : public testing::Test {
 protected:
  Worker::Task note(int value) {
    return [this, value] {
      order_.push_back(value);
      threads_.push_back(std::this_thread::get_id());
    };
  }

  static Worker::Task fail(const char* message) {
    return [message] { throw std::runtime_error(message); };
  }
  // What waiting raises, or "none".
  std::string error_of_waiting(Worker::Ticket ticket) {
    try {
      worker_.wait(ticket);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "none";
  }
  void await_without_working(Worker::Ticket ticket) {
    while (!worker_.has_run(ticket)) {
      std::this_thread::yield();
    }
  }

  std::vector<int> order_;
  std::vector<std::thread::id> threads_;
  Worker worker_{"test"};
};

TEST_F(WorkerTest, TasksRunInOrder) {
  Worker::Ticket last = 0;
  for (int i = 0; i < 100; ++i) {
    last = worker_.submit(note(i), i % 3 == 0 ? Worker::By::kWorker : Worker::By::kAnyone);
  }
  worker_.wait(last);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order_[i], i);
  }
  EXPECT_TRUE(worker_.has_run(last));
  EXPECT_FALSE(worker_.has_run(last + 1));
}

TEST_F(WorkerTest, WhoWaitsWorks) {
  const auto ticket = worker_.submit(note(1), Worker::By::kAnyone);
  EXPECT_FALSE(worker_.has_run(ticket));
  worker_.wait(ticket);
  EXPECT_EQ(threads_, std::vector<std::thread::id>({std::this_thread::get_id()}));
}

TEST_F(WorkerTest, WokenTasksNeedNobodyWhoWaits) {
  std::promise<std::thread::id> runner;
  worker_.submit([&] { runner.set_value(std::this_thread::get_id()); }, Worker::By::kWorker);
  EXPECT_NE(runner.get_future().get(), std::this_thread::get_id());
}

TEST_F(WorkerTest, TaskForWhoWaitsIsLeftByAThreadAtWork) {
  std::promise<void> go;
  worker_.submit([&] { go.get_future().wait(); }, Worker::By::kWorker);
  const auto anyones = worker_.submit(note(1), Worker::By::kAnyone);
  const auto waiters = worker_.submit(note(2), Worker::By::kWaiter);
  go.set_value();
  while (!worker_.has_run(anyones)) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2)); // it might begin
  EXPECT_FALSE(worker_.has_run(waiters));
  worker_.wait(waiters);
  EXPECT_NE(threads_[0], std::this_thread::get_id());
  EXPECT_EQ(threads_[1], std::this_thread::get_id());
}

TEST_F(WorkerTest, LaterTaskForTheThreadTakesEarlierOnesAlong) {
  worker_.submit(note(1), Worker::By::kWaiter);
  const auto last = worker_.submit(note(2), Worker::By::kWorker);
  while (!worker_.has_run(last)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(order_, std::vector<int>({1, 2}));
}

TEST_F(WorkerTest, WaitingForAnEarlierTaskLeavesTheLaterOnes) {
  const auto first = worker_.submit(note(1), Worker::By::kAnyone);
  worker_.submit(note(2), Worker::By::kAnyone);
  worker_.wait(first);
  EXPECT_EQ(order_, std::vector<int>({1}));
}

TEST_F(WorkerTest, TaskMaySubmitAndMustNotWaitForItself) {
  Worker::Ticket second = 0;
  bool refused = false;
  const auto first = worker_.submit(
      [&] {
        second = worker_.submit(note(2), Worker::By::kAnyone);
        try {
          worker_.wait(second);
        } catch (const c10::Error&) {
          refused = true;
        }
      },
      Worker::By::kAnyone);
  worker_.wait(first);
  worker_.wait(second);
  EXPECT_TRUE(refused);
  EXPECT_EQ(order_, std::vector<int>({2}));
}

struct NotedPart final : SideTask {
  void run() noexcept override {
    thread = std::this_thread::get_id();
    has_run = true;
  }
  void await_without_working() const {
    while (!has_run) {
      std::this_thread::yield();
    }
  }
  std::thread::id thread;
  std::atomic<bool> has_run = false;
};

TEST_F(WorkerTest, PartsRunOnItsThreadWhileWhoWaitsRunsTheTask) {
  NotedPart part;
  const auto ticket = worker_.submit(
      [&] {
        worker_.offer(part);
        part.await_without_working();
        worker_.await(part);
      },
      Worker::By::kWaiter);
  worker_.wait(ticket);
  EXPECT_NE(part.thread, std::this_thread::get_id());
}

TEST_F(WorkerTest, PartsRunOnAThreadThatWaits) {
  NotedPart first;
  NotedPart second;
  std::promise<void> has_begun;
  const auto ticket = worker_.submit(
      [&] {
        has_begun.set_value();
        for (NotedPart* part : {&first, &second}) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2)); // who waits has lost patience
          worker_.offer(*part);
          part->await_without_working();
          worker_.await(*part);
        }
      },
      Worker::By::kWorker);
  has_begun.get_future().wait();
  worker_.wait(ticket);
  EXPECT_EQ(first.thread, std::this_thread::get_id());
  EXPECT_EQ(second.thread, std::this_thread::get_id());
}

TEST_F(WorkerTest, PartsThatNobodyHasBegunRunWhereTheyAreAwaited) {
  NotedPart part;
  const auto ticket = worker_.submit(
      [&] {
        arm(FailPoint::kThread);
        worker_.offer(part);
        std::this_thread::sleep_for(std::chrono::milliseconds(2)); // a thread would begin
        EXPECT_FALSE(part.has_run);
        worker_.await(part);
      },
      Worker::By::kWaiter);
  worker_.wait(ticket);
  EXPECT_EQ(part.thread, std::this_thread::get_id());
}

TEST_F(WorkerTest, ManyPartsRunOnce) {
  struct Counted final : SideTask {
    void run() noexcept override {
      ++runs;
    }
    std::atomic<int> runs = 0;
  };
  for (const auto by : {Worker::By::kWaiter, Worker::By::kWorker}) {
    std::vector<Counted> parts(2'000);
    const auto ticket = worker_.submit(
        [&] {
          for (size_t i = 0; i < parts.size(); i += 2) {
            worker_.offer(parts[i]);
            worker_.offer(parts[i + 1]);
            worker_.await(parts[i]);
            worker_.await(parts[i + 1]);
          }
        },
        by);
    worker_.wait(ticket);
    EXPECT_TRUE(std::all_of(parts.begin(), parts.end(), [](const Counted& part) { return part.runs == 1; }));
  }
}

TEST_F(WorkerTest, WhatATaskHoldsIsFreedBeforeItHasRun) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  const auto ticket = worker_.submit([held = std::move(held)] {}, Worker::By::kWorker);
  worker_.wait(ticket);
  EXPECT_TRUE(watch.expired());
}

TEST_F(WorkerTest, AfterStopWorkRunsWhereSomebodyWaits) {
  worker_.wait(worker_.submit(note(1), Worker::By::kWorker));
  worker_.stop();
  const auto ticket = worker_.submit(note(2), Worker::By::kWorker);
  worker_.wait(ticket);
  EXPECT_EQ(order_, std::vector<int>({1, 2}));
  EXPECT_EQ(threads_.back(), std::this_thread::get_id());
}

TEST_F(WorkerTest, ManyThreadsSubmitAndWait) {
  std::atomic<int> running{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto ticket = worker_.submit(
            [&] {
              EXPECT_EQ(running.fetch_add(1), 0); // one at a time
              ++done;
              running.fetch_sub(1);
            },
            (i + t) % 2 == 0 ? Worker::By::kWorker : Worker::By::kAnyone);
        if (i % 5 == 0) {
          worker_.wait(ticket);
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  worker_.wait(800);
  EXPECT_EQ(done, 800);
}

// ---- what goes wrong ----

TEST_F(WorkerTest, ATaskThatThrowsOnTheThreadStopsNeitherItNorTheProcess) {
  const auto failing = worker_.submit(fail("first"), Worker::By::kWorker);
  await_without_working(failing);
  const auto next = worker_.submit(note(1), Worker::By::kWorker);
  await_without_working(next);
  EXPECT_NE(threads_.back(), std::this_thread::get_id());
  EXPECT_EQ(error_of_waiting(next), "first");
  EXPECT_EQ(error_of_waiting(next), "none") << "told once";
}

TEST_F(WorkerTest, ATaskThatThrowsWhereSomebodyWaitsLeavesTheQueueUsable) {
  const auto failing = worker_.submit(fail("first"), Worker::By::kAnyone);
  const auto next = worker_.submit(note(1), Worker::By::kAnyone);
  EXPECT_EQ(error_of_waiting(failing), "first");
  EXPECT_TRUE(order_.empty());
  EXPECT_EQ(error_of_waiting(next), "none");
  await_without_working(worker_.submit(note(2), Worker::By::kWorker));
  EXPECT_EQ(order_, std::vector<int>({1, 2}));
}

TEST_F(WorkerTest, WhoWaitsHearsOfTheFirstErrorUpToItsOwnTaskOnly) {
  const auto before = worker_.submit(note(1), Worker::By::kAnyone);
  worker_.submit(fail("first"), Worker::By::kAnyone);
  const auto second = worker_.submit(fail("second"), Worker::By::kAnyone);
  const auto third = worker_.submit(fail("third"), Worker::By::kWorker);
  await_without_working(third);
  EXPECT_EQ(error_of_waiting(before), "none");
  EXPECT_EQ(error_of_waiting(second), "first");
  EXPECT_EQ(error_of_waiting(second), "none");
  EXPECT_EQ(error_of_waiting(third), "third");
}

TEST_F(WorkerTest, TasksThatThrowAreCountedAndWhatTheyHoldIsFreed) {
  reset_metrics();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  const auto ticket = worker_.submit(
      [held = std::move(held)] { throw std::runtime_error(std::to_string(*held)); },
      Worker::By::kAnyone);
  EXPECT_EQ(error_of_waiting(ticket), "1");
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(counter_value("WorkerTaskFailed"), 1);
}

TEST_F(WorkerTest, WithoutAThreadWhoWaitsWorks) {
  reset_metrics();
  arm(FailPoint::kThread);
  worker_.submit(note(1), Worker::By::kWorker);
  const auto second = worker_.submit(note(2), Worker::By::kAnyone);
  EXPECT_EQ(counter_value("WorkerThreadRefused"), 1);
  worker_.wait(second);
  EXPECT_EQ(order_, std::vector<int>({1, 2}));
  EXPECT_EQ(threads_.front(), std::this_thread::get_id());
  await_without_working(worker_.submit(note(3), Worker::By::kWorker));
  EXPECT_NE(threads_.back(), std::this_thread::get_id()) << "it is asked for again";
}

// ---- scheduling ----

int policy_of_worker_started_under(int policy) {
  std::promise<int> promise;
  std::future<int> found = promise.get_future();
  std::thread([&] {
    const sched_param parameters{};
    sched_setscheduler(/*this thread*/ 0, policy, &parameters);
    Worker worker("test");
    worker.submit([&] { promise.set_value(sched_getscheduler(0)); }, Worker::By::kWorker);
    found.wait();
  }).join();
  return found.get();
}

TEST(WorkerPolicyTest, OnlyTheOrdinaryPolicyIsReplaced) {
  EXPECT_EQ(policy_of_worker_started_under(SCHED_OTHER), SCHED_BATCH);
  EXPECT_EQ(policy_of_worker_started_under(SCHED_BATCH), SCHED_BATCH);
  EXPECT_EQ(policy_of_worker_started_under(SCHED_IDLE), SCHED_IDLE);
}

} // namespace
} // namespace lazyplug
