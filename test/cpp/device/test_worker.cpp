#include "device/worker.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

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

  std::vector<int> order_;
  std::vector<std::thread::id> threads_;
  Worker worker_{"test"};
};

TEST_F(WorkerTest, TasksRunInOrder) {
  Worker::Ticket last = 0;
  for (int i = 0; i < 100; ++i) {
    last = worker_.submit(note(i), /*wake=*/i % 3 == 0);
  }
  worker_.wait(last);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order_[i], i);
  }
  EXPECT_TRUE(worker_.has_run(last));
  EXPECT_FALSE(worker_.has_run(last + 1));
}

TEST_F(WorkerTest, WhoWaitsWorks) {
  const auto ticket = worker_.submit(note(1), /*wake=*/false);
  EXPECT_FALSE(worker_.has_run(ticket));
  worker_.wait(ticket);
  EXPECT_EQ(threads_, std::vector<std::thread::id>({std::this_thread::get_id()}));
}

TEST_F(WorkerTest, WokenTasksNeedNobodyWhoWaits) {
  std::promise<std::thread::id> runner;
  worker_.submit([&] { runner.set_value(std::this_thread::get_id()); }, /*wake=*/true);
  EXPECT_NE(runner.get_future().get(), std::this_thread::get_id());
}

TEST_F(WorkerTest, WaitingForAnEarlierTaskLeavesTheLaterOnes) {
  const auto first = worker_.submit(note(1), /*wake=*/false);
  worker_.submit(note(2), /*wake=*/false);
  worker_.wait(first);
  EXPECT_EQ(order_, std::vector<int>({1}));
}

TEST_F(WorkerTest, TaskMaySubmitAndMustNotWaitForItself) {
  Worker::Ticket second = 0;
  bool refused = false;
  const auto first = worker_.submit(
      [&] {
        second = worker_.submit(note(2), /*wake=*/false);
        try {
          worker_.wait(second);
        } catch (const c10::Error&) {
          refused = true;
        }
      },
      /*wake=*/false);
  worker_.wait(first);
  worker_.wait(second);
  EXPECT_TRUE(refused);
  EXPECT_EQ(order_, std::vector<int>({2}));
}

TEST_F(WorkerTest, WhatATaskHoldsIsFreedBeforeItHasRun) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  const auto ticket = worker_.submit([held = std::move(held)] {}, /*wake=*/true);
  worker_.wait(ticket);
  EXPECT_TRUE(watch.expired());
}

TEST_F(WorkerTest, AfterStopWorkRunsWhereSomebodyWaits) {
  worker_.wait(worker_.submit(note(1), /*wake=*/true));
  worker_.stop();
  const auto ticket = worker_.submit(note(2), /*wake=*/true);
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
            /*wake=*/(i + t) % 2 == 0);
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

} // namespace
} // namespace lazyplug
