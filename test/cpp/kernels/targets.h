#pragma once

#include <ATen/Version.h>

#include "kernels/tile_loops.h"

namespace lazyplug::kernels {

// Calls check(loops) for those of each target that this processor runs.
template <typename Check>
void for_each_target(const Check& check) {
  check(loops<float>());
  check(default_target::loops<float>());
#ifdef __x86_64__
  if (at::get_cpu_capability() == "AVX512") {
    check(avx2::loops<float>());
  }
#endif
}

} // namespace lazyplug::kernels
