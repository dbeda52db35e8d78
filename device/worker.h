// Workers: the threads on which the device computes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/side_tasks.h"

namespace lazyplug {

// Runs tasks one at a time, in the order of submission: on a thread of its own, or on a thread that waits for one of
// them. Who waits also works: a task that nobody has begun is run by the waiting thread itself, which saves two
// switches between threads and keeps the caller's OpenMP pool in use.
//
// A task may offer parts of itself, which may run beside it, on whichever of these threads has nothing else to do: its
// own, while a waiting thread runs the task, or one that waits.
//
// Locking: `mutex_` guards all members; no task runs, and none is destroyed, while it is held. Tasks may be submitted
// while other locks are held; wait() must not be called with one that a task needs.
class Worker {
 public:
  using Task = std::function<void()>;
  // Position of a task in the order of submission, from 1 on.
  using Ticket = uint64_t;

  explicit Worker(std::string name) : name_(std::move(name)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Who is to run a task. Whoever waits for one may run it; besides,
  enum class By {
    kWaiter, // nobody, unless a later task is for the worker
    kAnyone, // the worker, if it is at work
    kWorker, // the worker, which is woken
  };

  // Appends a task. If the system refuses a thread, all tasks are for those who wait.
  Ticket submit(Task task, By by);

  // Returns when the task with this ticket, and with it all before it, has run. Raises if the calling thread is
  // running a task of this worker. If some of these tasks have thrown, raises the first such error that no earlier
  // wait has met; the worker goes on.
  void wait(Ticket ticket);
  bool has_run(Ticket ticket) const;

  // See SideThreads. For the thread that runs a task.
  void offer(SideTask& part);
  void await(SideTask& part);

  // How long the thread has lately taken to begin when it was woken, in seconds; a guess until it has been.
  double wake_latency() const {
    return wake_latency_.load(std::memory_order_relaxed);
  }

  // How long it has lately taken to wake it, for who does, in seconds.
  double wake_cost() const {
    return wake_cost_.load(std::memory_order_relaxed);
  }

  // Ends the thread after the task that it is running. What is left in the queue then runs when somebody waits for it.
  void stop();

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Thrown {
    Ticket ticket;
    std::exception_ptr error;
  };

  void start_thread();
  void loop();
  bool is_for_thread(const Lock& lock) const;
  void await_work(Lock& lock);
  void look_out(Lock& lock);
  void note_wake_up();
  void wake_thread();
  void run_next(Lock& lock);
  void run_offered(Lock& lock);
  bool is_running(const SideTask& part, const Lock& lock) const;
  void raise_thrown(Ticket ticket, Lock& lock);

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_worker_; // there may be work
  std::condition_variable task_done_;
  std::deque<Task> queue_;
  std::deque<SideTask*> offered_;
  std::vector<const SideTask*> running_parts_; // by others than the task's thread
  std::condition_variable part_done_;
  std::vector<Thrown> thrown_; // by tasks, in their order, that nobody has waited for since
  Ticket submitted_ = 0;
  std::atomic<Ticket> completed_ = 0; // written with the lock
  bool running_ = false;
  std::thread::id runner_;    // while running_
  bool more_to_come_ = false; // whoever submitted the last task did not do so in order to wait
  Ticket called_for_ = 0;     // the thread is to run the tasks up to this one
  bool asleep_ = false;       // the thread must be woken
  bool has_helped_ = false;   // the thread has run a part since it last looked out
  bool stopped_ = false;
  // Set with the lock, after what there is to see; threads look for it without.
  std::atomic<bool> called_ = false;
  std::atomic<bool> has_offers_ = false;
  std::atomic<uint64_t> num_parts_done_ = 0;        // by others
  std::chrono::steady_clock::time_point called_at_; // while asleep_
  std::atomic<double> wake_latency_ = 5e-5;
  std::atomic<double> wake_cost_ = 1e-5;
  std::thread thread_; // started by the first task to wake it
};

} // namespace lazyplug
