#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <limits>

namespace lazyplug {

// What kernels check of the numbers of a call: they refuse some that are
// negative, zero, one, not probabilities, or do not fit a dtype, and some that
// are less than the number before, or farther from it than a dtype reaches. (Of a
// complex number, the imaginary part comes after the real one.) Calls
// whose numbers are of the same ranges are equal to them. Of lists, every number
// is looked at.
class NumberRanges {
 public:
  void add(const c10::IValue& scalar);
  void add(double number);
  // A Python number that reaches the op as a 0-dim CPU tensor.
  void add(const c10::TensorImpl& number);

  uint64_t word() const {
    return word_;
  }
  bool operator==(const NumberRanges& other) const {
    return word_ == other.word_;
  }

 private:
  void add(c10::complex<double> number);

  uint64_t word_ = 0;
  double last_ = std::numeric_limits<double>::quiet_NaN();
};

} // namespace lazyplug
