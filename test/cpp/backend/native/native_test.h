// What the tests of native kernels share: random numbers that repeat, and no fallback.
#pragma once

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {

class NativeTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    at::manual_seed(1);
  }
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
};

} // namespace lazyplug
