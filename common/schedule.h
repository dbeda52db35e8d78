#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lazyplug {

// For tests (the flag `schedule`): cuts traces elsewhere than CutPolicy would,
// and has workers be late, to show that results depend on neither.
//
//   ""               no schedule
//   "never"          cuts only where the program reads or waits
//   "every:<n>"      cuts after each n-th op of a stream
//   "random:<seed>"  cuts after ops that the seed chooses, by their number
class Schedule {
 public:
  // Nothing if the text is no schedule.
  static std::optional<Schedule> parse(std::string_view text);

  bool is_set() const {
    return kind_ != Kind::kNone;
  }
  // Whether the trace ends after this op of the stream, counted from 1.
  bool cuts_after(uint64_t op) const;
  // How long the worker waits before it begins with what ends there.
  std::chrono::microseconds delay(uint64_t op) const;

 private:
  enum class Kind : uint8_t { kNone, kNever, kEvery, kRandom };

  Kind kind_ = Kind::kNone;
  uint64_t number_ = 0; // n, or the seed
};

} // namespace lazyplug
