#pragma once

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {

// A step of a program that is another one for each length, and none of whose sizes is new.
inline void run_step_of_length(int64_t length) {
  const at::Tensor start = iota({3, 7});
  at::Tensor x = to_lazy(start);
  at::Tensor expected = start;
  for (int64_t i = 0; i < length; ++i) {
    x = at::cat({x * x, x}).narrow(0, 0, 3) * 0.5;
    expected = at::cat({expected * expected, expected}).narrow(0, 0, 3) * 0.5;
  }
  EXPECT_TRUE(at::allclose(x.cpu(), expected, 0, 0, /*equal_nan=*/true));
}

} // namespace lazyplug
