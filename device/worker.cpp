#include "device/worker.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

namespace lazyplug {

Worker::~Worker() {
  stop();
}

Worker::Ticket Worker::submit(Task task, bool wake) {
  const Lock lock(mutex_);
  queue_.push_back(std::move(task));
  if (wake && !stopped_) {
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { loop(); });
    }
    awake_ = true;
    wake_worker_.notify_one();
  }
  return ++submitted_;
}

void Worker::wait(Ticket ticket) {
  Lock lock(mutex_);
  TORCH_CHECK(
      completed_ >= ticket || !running_ || runner_ != std::this_thread::get_id(),
      "a kernel that runs on the lazy device needs a result of the same device that is still pending");
  while (completed_ < ticket) {
    if (!running_ && !queue_.empty()) {
      run_next(lock);
    } else {
      task_done_.wait(lock);
    }
  }
}

bool Worker::has_run(Ticket ticket) const {
  const Lock lock(mutex_);
  return completed_ >= ticket;
}

void Worker::stop() {
  {
    const Lock lock(mutex_);
    stopped_ = true;
    wake_worker_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Worker::loop() {
  c10::setThreadName(name_);
  Lock lock(mutex_);
  while (!stopped_) {
    if (awake_ && !queue_.empty() && !running_) {
      run_next(lock);
    } else {
      wake_worker_.wait(lock);
    }
  }
}

void Worker::run_next(Lock& lock) {
  Task task = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  runner_ = std::this_thread::get_id();
  lock.unlock();
  task();
  task = nullptr; // what it holds may need locks to die
  lock.lock();
  running_ = false;
  ++completed_;
  awake_ = awake_ && !queue_.empty();
  task_done_.notify_all();
  if (awake_) {
    wake_worker_.notify_one(); // in case a waiting thread ran this task, and leaves now
  }
}

} // namespace lazyplug
