// How a thread computes with floats, beyond what its instructions say.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace lazyplug {

// Rounding, and whether denormal numbers are taken for zeros (torch.set_flush_denormal): of each thread its own.
class FloatControl {
 public:
  static FloatControl of_this_thread() {
    FloatControl control;
#if defined(__SSE__)
    control.bits_ = _mm_getcsr() & ~kRaised;
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(control.bits_));
#endif
    return control;
  }
  void use() const {
#if defined(__SSE__)
    _mm_setcsr(static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(bits_));
#endif
  }
  bool operator==(const FloatControl&) const = default;

 private:
  static constexpr unsigned kRaised = 0x3F; // exceptions so far
  uint64_t bits_ = 0;
};

// The calling thread computes as another one does, while this lives.
class FloatControlScope {
 public:
  explicit FloatControlScope(FloatControl control) : differs_(!(control == before_)) {
    if (differs_) {
      control.use();
    }
  }
  FloatControlScope(const FloatControlScope&) = delete;
  FloatControlScope& operator=(const FloatControlScope&) = delete;
  ~FloatControlScope() {
    if (differs_) {
      before_.use();
    }
  }

 private:
  const FloatControl before_ = FloatControl::of_this_thread();
  const bool differs_;
};

} // namespace lazyplug
