#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace lazyplug {

// What kernels check of the numbers of a call: they refuse some that are
// negative, zero, not probabilities, or do not fit a dtype. Calls whose numbers
// are of the same ranges are equal to them.
class NumberRanges {
 public:
  void add(const c10::IValue& scalar);
  // A Python number that reaches the op as a 0-dim CPU tensor.
  void add(const c10::TensorImpl& number);

  uint64_t word() const {
    return word_;
  }
  bool operator==(const NumberRanges&) const = default;

 private:
  void add(double number);

  uint64_t word_ = 0;
};

} // namespace lazyplug
