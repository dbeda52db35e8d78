// Mutexes that a forked child can go on using.
#pragma once

#include <mutex>

namespace lazyplug {

// A mutex that no other thread holds while the process is forked: fork() takes them all first, and both processes let
// go of them. So what it guards is whole in the child, whatever the parent's threads were doing.
//
// For a few instructions only: nothing else is locked, and neither Python nor a deleter of somebody else's runs, while
// one is held. May be made and destroyed at any time, by any thread, but not while another one is held.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() {
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
};

using ForkSafeLock = std::lock_guard<ForkSafeMutex>;

} // namespace lazyplug
