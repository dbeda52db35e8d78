#pragma once

#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// One instruction on n elements.
template <typename T>
using Loop = void (*)(int64_t n, T* out, const T* a, const T* b, const T* c, T s, T t);

template <typename T>
struct Loops {
  Loop<T> of[kNumOpcodes];
};

// Those for the processor, and the setting ATEN_CPU_CAPABILITY.
template <typename T>
const Loops<T>& loops();

// tile_loops.inc.cpp is compiled once for each.
namespace default_target {
template <typename T>
const Loops<T>& loops();
}
#ifdef LAZYPLUG_X86_KERNELS
namespace avx2 {
template <typename T>
const Loops<T>& loops();
}
namespace avx512 {
template <typename T>
const Loops<T>& loops();
}
#endif

} // namespace lazyplug::kernels
