// Which op a thread is running, for messages of layers that do not know ops.
#pragma once

#include <utility>

namespace lazyplug {

// The name of the op that runs on this thread, or null.
inline const char*& running_op() {
  static thread_local const char* name = nullptr;
  return name;
}

// An op runs while this lives. The text must stay for ever.
class RunningOp {
 public:
  explicit RunningOp(const char* name) : outer_(std::exchange(running_op(), name)) {}
  RunningOp(const RunningOp&) = delete;
  RunningOp& operator=(const RunningOp&) = delete;
  ~RunningOp() {
    running_op() = outer_;
  }

 private:
  const char* const outer_;
};

} // namespace lazyplug
