// Exact comparison with a CPU tensor, for results that the same kernels compute.
#pragma once

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {

inline void expect_same(const at::Tensor& lazy, const at::Tensor& expected) {
  EXPECT_EQ(lazy.device(), lazy_device(0));
  EXPECT_EQ(lazy.is_conj(), expected.is_conj());
  EXPECT_EQ(lazy.strides(), expected.strides());
  const at::Tensor actual = lazy.cpu();
  ASSERT_EQ(actual.dtype(), expected.dtype());
  EXPECT_TRUE(at::equal(actual, expected)) << actual << "\ninstead of\n" << expected;
}

} // namespace lazyplug
