#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/config.h"

namespace lazyplug {

// What the text of a flag means, an enumeration of one byte or a bool: read again only when the flag has changed, so
// that a hot path may ask. Thread-safe.
template <typename T>
class ParsedFlag {
 public:
  using Parse = T (*)(const std::string& text);

  ParsedFlag(const Flag<std::string>& flag, Parse parse) : flag_(flag), parse_(parse) {}

  T get() {
    static_assert(sizeof(T) == 1, "it stands beside the version");
    const uint64_t version = flag_.version(); // before the text: who has read an older one reads again
    uint64_t known = known_.load(std::memory_order_relaxed);
    if (known >> kBits != version) {
      known = version << kBits | static_cast<uint8_t>(parse_(flag_.get()));
      known_.store(known, std::memory_order_relaxed);
    }
    return static_cast<T>(known & ((uint64_t{1} << kBits) - 1));
  }

 private:
  static constexpr int kBits = 8;

  const Flag<std::string>& flag_;
  const Parse parse_;
  std::atomic<uint64_t> known_{0}; // the version, which is never 0, and what its text means
};

} // namespace lazyplug
