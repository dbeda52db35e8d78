#include "common/fork_safe_mutex.h"

#include <pthread.h>

#include <set>

namespace lazyplug {
namespace {

// Every mutex there is. Never destroyed: mutexes die during static destruction.
struct AllMutexes {
  static AllMutexes& get() {
    static auto* all = new AllMutexes();
    return *all;
  }
  AllMutexes() {
    pthread_atfork(lock_all, unlock_all, unlock_all);
  }

  static void lock_all() {
    get().mutex.lock();
    for (ForkSafeMutex* each : get().mutexes) {
      each->lock();
    }
  }
  static void unlock_all() {
    for (ForkSafeMutex* each : get().mutexes) {
      each->unlock();
    }
    get().mutex.unlock();
  }

  std::mutex mutex;                 // guards the set
  std::set<ForkSafeMutex*> mutexes; // by address, and so always taken in the same order
};

} // namespace

ForkSafeMutex::ForkSafeMutex() {
  auto& all = AllMutexes::get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.mutexes.insert(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  auto& all = AllMutexes::get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.mutexes.erase(this);
}

} // namespace lazyplug
