#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "common/fork_safe_mutex.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Whether `other` takes the arguments of `schema`, and then as many more.
bool takes_arguments_of(const c10::FunctionSchema& schema, const c10::FunctionSchema& other, size_t num_more = 0);

// What is found out about ops, such as their variants, once for each. Thread-safe.
template <typename T>
class OpVariants {
 public:
  explicit OpVariants(T (*find)(const OpInfo& op)) : find_(find) {}

  // Valid for ever.
  const T& of(const OpInfo& op) {
    std::unique_lock<ForkSafeMutex> lock(mutex_);
    const auto known = variants_.find(&op);
    if (known != variants_.end()) {
      return known->second;
    }
    lock.unlock(); // the dispatcher has a lock of its own
    T found = find_(op);
    lock.lock();
    return variants_.try_emplace(&op, std::move(found)).first->second;
  }

 private:
  T (*const find_)(const OpInfo& op);
  ForkSafeMutex mutex_; // guards the next member
  std::unordered_map<const OpInfo*, T> variants_;
};

} // namespace lazyplug
