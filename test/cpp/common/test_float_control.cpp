#include "common/float_control.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace lazyplug {
namespace {

// Half of the smallest normal number.
bool flushes() {
  volatile float smallest = std::numeric_limits<float>::min();
  return smallest * 0.5F == 0.0F;
}

class FloatControlTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().setFlushDenormal(true)) {
      GTEST_SKIP() << "this processor has no such mode";
    }
  }
  void TearDown() override {
    at::globalContext().setFlushDenormal(false);
  }
};

TEST_F(FloatControlTest, AnotherThreadComputesAsThisOne) {
  ASSERT_TRUE(flushes());
  const FloatControl here = FloatControl::of_this_thread();
  std::vector<bool> flushed;
  std::thread([&] {
    at::globalContext().setFlushDenormal(false); // may be inherited
    flushed.push_back(flushes());
    {
      const FloatControlScope scope(here);
      flushed.push_back(flushes());
    }
    flushed.push_back(flushes());
  }).join();
  EXPECT_EQ(flushed, std::vector<bool>({false, true, false}));
}

TEST_F(FloatControlTest, WhatHasHappenedIsNoPartOfIt) {
  const FloatControl before = FloatControl::of_this_thread();
  volatile float zero = 0;
  volatile float infinite = 1 / zero;
  EXPECT_EQ(infinite, std::numeric_limits<float>::infinity());
  EXPECT_EQ(FloatControl::of_this_thread(), before);
}

} // namespace
} // namespace lazyplug
