#include "backend/caches/varying_sizes.h"

#include "backend/api/cached_run.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class VaryingSizesTest : public BackendTest {
 protected:
  ~VaryingSizesTest() override {
    clear_graphs();
  }

  static void run(int64_t size) {
    const at::Tensor cpu = iota({3, size});
    expect_equal(to_lazy(cpu) * to_lazy(cpu) + 1, cpu * cpu + 1);
  }
};

TEST_F(VaryingSizesTest, AfterAFewGraphsCallsOfNewSizesRunAtOnce) {
  for (int64_t size = 1001; size <= 1030; ++size) {
    run(size);
  }
  EXPECT_LE(count("Compile"), config().max_size_variants.get() + 1);
  EXPECT_GT(count("RunAtOnce"), 20);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(VaryingSizesTest, WhatComesAgainIsRecorded) {
  for (int64_t round = 0; round < 3; ++round) {
    reset_metrics();
    for (int64_t size = 2001; size <= 2030; ++size) {
      run(size);
    }
  }
  EXPECT_EQ(count("Compile"), 0);
  EXPECT_EQ(count("RunAtOnce"), 0);
  EXPECT_EQ(count("CacheHit"), 30);
}

TEST_F(VaryingSizesTest, SizesThatComeTwiceInAStepAreStillNew) {
  const auto layers = [](int64_t size) {
    const at::Tensor x = to_lazy(iota({3, size}));
    const at::Tensor first = at::cat({x, x * x}), second = at::cat({x, x * x});
    expect_equal(first + second, at::cat({iota({3, size}), iota({3, size}).square()}) * 2);
  };
  for (int64_t size = 5001; size <= 5030; ++size) {
    layers(size);
  }
  EXPECT_LE(count("Compile"), config().max_size_variants.get() + 1);
}

TEST_F(VaryingSizesTest, OtherProgramsMakeItForget) {
  for (int64_t size = 3001; size <= 3030; ++size) {
    run(size);
  }
  at::Tensor x = to_lazy(iota({2}));
  for (int64_t length = 1; length <= 2 * config().max_size_variants.get(); ++length) {
    x = x + x; // a longer program each time
    at::Tensor y = x;
    for (int64_t i = 0; i < length; ++i) {
      y = y * x;
    }
    y.cpu();
  }
  reset_metrics();
  run(3031);
  EXPECT_EQ(count("RunAtOnce"), 0);
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(VaryingSizesTest, IsForgottenWithAllGraphs) {
  for (int64_t size = 6001; size <= 6030; ++size) {
    run(size);
  }
  clear_graphs();
  reset_metrics();
  run(6031);
  EXPECT_EQ(count("RunAtOnce"), 0);
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(VaryingSizesTest, BlockingModeRecordsEachCall) {
  const ScopedFlag<bool> blocking(config().launch_blocking, true);
  for (int64_t size = 4001; size <= 4030; ++size) {
    run(size);
  }
  EXPECT_EQ(count("RunAtOnce"), 0);
}

} // namespace
} // namespace lazyplug
