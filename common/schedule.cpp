#include "common/schedule.h"

#include <charconv>

#include "common/hash.h"

namespace lazyplug {
namespace {

enum class Purpose : uint64_t { kLength, kCut, kDelay };

uint64_t draw(uint64_t seed, Purpose purpose, uint64_t op) {
  return hash_combine(hash_combine(hash_combine({}, seed), static_cast<uint64_t>(purpose)), op).lo;
}

std::optional<uint64_t> number_after(std::string_view prefix, std::string_view text) {
  uint64_t number = 0;
  if (!text.starts_with(prefix)) {
    return std::nullopt;
  }
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + prefix.size(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(number) : std::nullopt;
}

} // namespace

std::optional<Schedule> Schedule::parse(std::string_view text) {
  Schedule schedule;
  if (text == "never") {
    schedule.kind_ = Kind::kNever;
  } else if (const auto n = number_after("every:", text); n && *n > 0) {
    schedule.kind_ = Kind::kEvery;
    schedule.number_ = *n;
  } else if (const auto seed = number_after("random:", text)) {
    schedule.kind_ = Kind::kRandom;
    schedule.number_ = *seed;
  } else if (!text.empty()) {
    return std::nullopt;
  }
  return schedule;
}

bool Schedule::cuts_after(uint64_t op) const {
  switch (kind_) {
    case Kind::kEvery:
      return op % number_ == 0;
    case Kind::kRandom: {
      const uint64_t mean_length = uint64_t{2} << draw(number_, Purpose::kLength, 0) % 5; // 2 to 32
      return draw(number_, Purpose::kCut, op) % mean_length == 0;
    }
    default:
      return false;
  }
}

std::chrono::microseconds Schedule::delay(uint64_t op) const {
  const bool is_late = (kind_ == Kind::kEvery || kind_ == Kind::kRandom) && draw(number_, Purpose::kDelay, op) % 4 == 0;
  return std::chrono::microseconds(is_late ? draw(number_, Purpose::kDelay, ~op) % 200 : 0);
}

} // namespace lazyplug
