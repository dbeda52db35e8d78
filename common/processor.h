#pragma once

namespace lazyplug {

// Whether MKL has kernels of its own for the processor.
inline bool is_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

} // namespace lazyplug
