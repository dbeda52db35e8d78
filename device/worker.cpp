#include "device/worker.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "common/fail_point.h"
#include "common/logging.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {

using Clock = std::chrono::steady_clock;

// The next piece of a step is often about to come, and to wake a thread takes its caller tens of microseconds: so a
// thread looks out for so long before it sleeps.
constexpr std::chrono::microseconds kPatience(100);

// A batch thread has its share of the processor, but does not take it from the thread that wakes it: that one is
// recording, and would stand still in the middle of handing over the work. A policy that somebody has chosen stays.
void yield_to_recording() {
  if (sched_getscheduler(/*this thread*/ 0) == SCHED_OTHER) {
    const sched_param parameters{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters); // a matter of speed: may fail
  }
}

template <typename Condition>
void yield_until(Condition holds) {
  for (const auto start = Clock::now(); !holds() && Clock::now() - start < kPatience;) {
    std::this_thread::yield();
  }
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of two threads that do so at the same time, one may be forgotten.
void average_in(std::atomic<double>& average, double value) {
  constexpr double kWeight = 0.125;
  const double before = average.load(std::memory_order_relaxed);
  average.store(before + kWeight * (value - before), std::memory_order_relaxed);
}

// Returns what the task throws.
std::exception_ptr run(const Worker::Task& task) {
  static Counter& failed = counter("WorkerTaskFailed");
  try {
    task();
    return nullptr;
  } catch (...) {
    failed.add();
    return std::current_exception();
  }
}

} // namespace

Worker::~Worker() {
  stop();
}

Worker::Ticket Worker::submit(Task task, By by) {
  Lock lock(mutex_);
  const bool is_at_work = called_for_ == submitted_ && called_for_ > completed_;
  queue_.push_back(std::move(task));
  const Ticket ticket = ++submitted_;
  const bool notify = by == By::kWorker && !stopped_;
  if (notify) {
    start_thread();
    called_ = true;
  }
  more_to_come_ = by == By::kWorker;
  if (notify || (by == By::kAnyone && is_at_work)) {
    called_for_ = ticket;
  }
  const bool is_asleep = asleep_;
  if (notify && is_asleep) {
    called_at_ = Clock::now();
  }
  lock.unlock(); // the worker wants it as soon as it wakes
  if (notify && is_asleep) {
    wake_thread();
  }
  return ticket;
}

void Worker::wait(Ticket ticket) {
  Lock lock(mutex_);
  TORCH_CHECK(
      completed_ >= ticket || !running_ || runner_ != std::this_thread::get_id(),
      "a kernel that runs on the lazy device needs a result of the same device that is still pending");
  bool is_patient = true;
  while (completed_ < ticket) {
    if (!running_ && !queue_.empty()) {
      run_next(lock);
    } else if (has_offers_) {
      run_offered(lock);
      is_patient = true;
    } else if (std::exchange(is_patient, false)) {
      look_out(lock);
    } else {
      task_done_.wait(lock);
    }
  }
  raise_thrown(ticket, lock);
}

// Without the lock: an error may be Python's.
void Worker::raise_thrown(Ticket ticket, Lock& lock) {
  const auto is_later = [ticket](const Thrown& thrown) { return thrown.ticket > ticket; };
  const auto end = std::find_if(thrown_.begin(), thrown_.end(), is_later);
  const std::vector<Thrown> raised(std::make_move_iterator(thrown_.begin()), std::make_move_iterator(end));
  thrown_.erase(thrown_.begin(), end);
  lock.unlock();
  if (!raised.empty()) {
    std::rethrow_exception(raised.front().error);
  }
}

bool Worker::has_run(Ticket ticket) const {
  return completed_ >= ticket;
}

void Worker::stop() {
  {
    const Lock lock(mutex_);
    stopped_ = true;
    called_ = true;
    wake_worker_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Worker::start_thread() {
  static Counter& refused = counter("WorkerThreadRefused");
  if (thread_.joinable()) {
    return;
  }
  try {
    pass(FailPoint::kThread);
    thread_ = std::thread([this] { loop(); });
  } catch (const std::exception& error) {
    refused.add();
    log_info("no thread for ", name_, ", so who waits does its work: ", error.what());
  }
}

// Whether there is a task for it that nobody has begun.
bool Worker::is_for_thread(const Lock& /*lock*/) const {
  return !queue_.empty() && called_for_ > submitted_ - queue_.size();
}

void Worker::loop() {
  c10::setThreadName(name_);
  yield_to_recording();
  Lock lock(mutex_);
  while (!stopped_) {
    if (is_for_thread(lock) && !running_) {
      run_next(lock);
    } else if (has_offers_) {
      run_offered(lock);
      has_helped_ = true;
    } else {
      await_work(lock);
    }
  }
}

// The task that runs is often about to end, and to be woken takes tens of microseconds.
void Worker::look_out(Lock& lock) {
  const Ticket before = completed_;
  lock.unlock();
  yield_until([&] { return completed_ != before || has_offers_; });
  lock.lock();
}

void Worker::await_work(Lock& lock) {
  called_ = false;
  if (std::exchange(has_helped_, false) || more_to_come_) {
    lock.unlock();
    yield_until([&] { return called_ || has_offers_; });
    lock.lock();
  }
  if (!called_ && !has_offers_) {
    asleep_ = true;
    wake_worker_.wait(lock);
    asleep_ = false;
    note_wake_up();
  }
}

// One of those that sleep, if any, has time: the thread, unless it runs the task itself, or else who waits for that.
void Worker::offer(SideTask& part) {
  Lock lock(mutex_);
  if (!stopped_) {
    start_thread();
  }
  offered_.push_back(&part);
  has_offers_ = true;
  const bool is_asleep = asleep_;
  lock.unlock();
  is_asleep ? wake_worker_.notify_one() : task_done_.notify_one();
}

void Worker::await(SideTask& part) {
  Lock lock(mutex_);
  const auto offered = std::find(offered_.begin(), offered_.end(), &part);
  if (offered != offered_.end()) {
    offered_.erase(offered);
    has_offers_ = !offered_.empty();
    lock.unlock();
    part.run();
    return;
  }
  while (is_running(part, lock)) {
    const uint64_t before = num_parts_done_;
    lock.unlock();
    yield_until([&] { return num_parts_done_ != before; });
    lock.lock();
    part_done_.wait(lock, [&] { return num_parts_done_ != before; });
  }
}

bool Worker::is_running(const SideTask& part, const Lock& /*lock*/) const {
  return std::find(running_parts_.begin(), running_parts_.end(), &part) != running_parts_.end();
}

void Worker::run_offered(Lock& lock) {
  SideTask& part = *offered_.front();
  offered_.pop_front();
  has_offers_ = !offered_.empty();
  running_parts_.push_back(&part);
  lock.unlock();
  part.run();
  lock.lock();
  running_parts_.erase(std::find(running_parts_.begin(), running_parts_.end(), &part));
  ++num_parts_done_;
  part_done_.notify_all();
}

void Worker::note_wake_up() {
  if (called_at_ != Clock::time_point()) {
    average_in(wake_latency_, seconds_since(called_at_));
    called_at_ = {};
  }
}

void Worker::wake_thread() {
  const auto start = Clock::now();
  wake_worker_.notify_one();
  average_in(wake_cost_, seconds_since(start));
}

void Worker::run_next(Lock& lock) {
  Task task = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  runner_ = std::this_thread::get_id();
  lock.unlock();
  std::exception_ptr error = run(task);
  task = nullptr; // what it holds may need locks to die
  lock.lock();
  running_ = false;
  ++completed_;
  if (error) {
    thrown_.push_back({completed_, std::move(error)});
  }
  task_done_.notify_all();
  if (is_for_thread(lock)) {
    called_ = true;
    wake_worker_.notify_one(); // in case a waiting thread ran this task, and leaves now
  }
}

} // namespace lazyplug
