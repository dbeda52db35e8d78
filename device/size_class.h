// The sizes in which device memory is handed out: steps of at most an eighth, so that a freed block fits the next
// request of about that size.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lazyplug {

// What kernels, oneDNN's included, expect of memory.
constexpr size_t kBlockAlignment = 64;

// The blocks of class 0 have kBlockAlignment bytes; each class is larger than the one before.
using SizeClass = uint16_t;

// Up to 16 units of alignment each multiple has a class, from there on eight per power of two.
constexpr size_t kLinearClasses = 16;
constexpr size_t kClassesPerDoubling = 8;
constexpr size_t kNumSizeClasses = kLinearClasses + kClassesPerDoubling * 54;

// The smallest class whose blocks have that many bytes.
constexpr SizeClass size_class_of(size_t nbytes) {
  const size_t last_unit = nbytes == 0 ? 0 : (nbytes - 1) / kBlockAlignment;
  if (last_unit < kLinearClasses) {
    return static_cast<SizeClass>(last_unit);
  }
  const int shift = std::bit_width(last_unit) - 4;
  return static_cast<SizeClass>(kLinearClasses + (shift - 1) * kClassesPerDoubling + (last_unit >> shift) - 8);
}

constexpr size_t class_bytes(SizeClass size_class) {
  if (size_class < kLinearClasses) {
    return (size_class + 1) * kBlockAlignment;
  }
  const size_t step = size_class - kLinearClasses;
  const size_t shift = step / kClassesPerDoubling + 1;
  return ((step % kClassesPerDoubling + 9) << shift) * kBlockAlignment;
}

} // namespace lazyplug
