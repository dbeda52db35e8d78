// Work that another thread may do meanwhile.
#pragma once

#include <c10/util/FunctionRef.h>

namespace lazyplug {

// Something that may be done any time before its result is needed, by whoever has time.
class SideTask {
 public:
  virtual void run() noexcept = 0;

 protected:
  ~SideTask() = default;
};

// Threads that may have time, for a job that is running.
class SideThreads {
 public:
  // From now on another thread may run the task; it may be that none does. It must live until it has been awaited.
  virtual void offer(SideTask& task) = 0;
  // Returns when the task has run: runs it here if nobody has begun.
  virtual void await(SideTask& task) = 0;
  // Calls this on the calling thread, with all that the job sets up for the thread it runs on.
  virtual void run_as_job(c10::function_ref<void()> body) = 0;

 protected:
  ~SideThreads() = default;
};

} // namespace lazyplug
