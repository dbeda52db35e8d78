#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "common/float_control.h"

namespace lazyplug::kernels {

// Calls compute(begin, end) for parts of the range, on the intra-op threads if it is longer than the grain. They all
// compute with floats as the caller does, so that no bit depends on who computes what.
template <typename Compute>
void parallel_for(int64_t size, int64_t grain, const Compute& compute) {
  const FloatControl control = FloatControl::of_this_thread();
  at::parallel_for(0, size, grain, [&](int64_t begin, int64_t end) {
    const FloatControlScope scope(control);
    compute(begin, end);
  });
}

// How many intra-op threads are to share so many grains of work.
inline int64_t threads_for(double num_grains) {
  return static_cast<int64_t>(std::clamp<double>(num_grains, 1, at::get_num_threads()));
}

// Where a part begins of as many things as are to be shared about evenly.
constexpr int64_t begin_of_part(int64_t count, int64_t part, int64_t num_parts) {
  return count * part / num_parts;
}

} // namespace lazyplug::kernels
