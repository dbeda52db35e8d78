#pragma once

#include "common/config.h"

#include <utility>

namespace lazyplug {

// Sets a flag for the life of the scope.
template <typename T>
class ScopedFlag {
 public:
  ScopedFlag(Flag<T>& flag, T value) : flag_(flag), before_(flag.get()) {
    flag_.set(std::move(value));
  }
  ~ScopedFlag() {
    flag_.set(before_);
  }

 private:
  Flag<T>& flag_;
  const T before_;
};

} // namespace lazyplug
