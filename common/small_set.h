#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lazyplug {

// A set of what a call has, numbers or pointers: mostly a handful, which is quickest compared one by one; a call on the
// parameters of a whole model has hundreds.
template <typename T>
class SmallSet {
 public:
  bool contains(const T& value) const {
    if (slots_.empty()) {
      return std::find(few_.begin(), few_.end(), value) != few_.end();
    }
    return value == T() ? has_free_ : slots_[slot_of(value)] == value;
  }
  // False if it was there already.
  bool insert(const T& value) {
    if (slots_.empty()) {
      if (contains(value)) {
        return false;
      }
      if (few_.size() < kFew) {
        few_.push_back(value);
        return true;
      }
      grow(kManySlots);
      std::for_each(few_.begin(), few_.end(), [this](const T& few) { add(few); });
    }
    return add(value);
  }

 private:
  static constexpr size_t kFew = 16;
  static constexpr size_t kManySlots = 1024; // at most half of them are taken

  // The value's, or the free one where it would be: the first from where its hash says.
  size_t slot_of(const T& value) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    size_t slot = (std::hash<T>()(value) * kGoldenRatio) >> (64 - std::countr_zero(slots_.size()));
    while (slots_[slot] != T() && slots_[slot] != value) {
      slot = (slot + 1) % slots_.size();
    }
    return slot;
  }

  bool add(const T& value) {
    if (value == T()) {
      return !std::exchange(has_free_, true);
    }
    T& slot = slots_[slot_of(value)];
    if (slot == value) {
      return false;
    }
    slot = value;
    if (++num_taken_ > slots_.size() / 2) {
      grow(2 * slots_.size());
    }
    return true;
  }

  void grow(size_t num_slots) {
    const std::vector<T> before = std::exchange(slots_, std::vector<T>(num_slots));
    num_taken_ = 0;
    for (const T& value : before) {
      if (value != T()) {
        add(value);
      }
    }
  }

  c10::SmallVector<T, kFew> few_; // until there are more
  std::vector<T> slots_;          // a power of two; T() is free
  size_t num_taken_ = 0;
  bool has_free_ = false; // T() is in the set
};

} // namespace lazyplug
