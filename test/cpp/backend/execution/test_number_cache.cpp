#include "backend/execution/number_cache.h"

#include <cstring>

#include "backend/api/cached_run.h"
#include "lowering/calls/runtime_ops.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

Number number_of(const at::Tensor& tensor) {
  return Number::of(*tensor.unsafeGetTensorImpl(), /*prefer_float=*/false);
}

at::Tensor leaf_of(const at::Tensor& tensor) {
  return number_of(tensor).make_tensor();
}

// A float with these bits.
at::Tensor float_of(uint32_t bits) {
  at::Tensor tensor = at::empty({}, at::kFloat);
  std::memcpy(tensor.mutable_data_ptr(), &bits, sizeof(bits));
  return tensor;
}

// ---- numbers ----

TEST(NumberTest, HoldsEachDtypeBitByBit) {
  for (const auto dtype :
       {at::kBool, at::kByte, at::kLong, at::kHalf, at::kBFloat16, at::kDouble, at::kComplexDouble}) {
    const at::Tensor one = at::ones({}, dtype);
    const at::Tensor copy = leaf_of(one);
    EXPECT_EQ(copy.scalar_type(), dtype);
    EXPECT_EQ(copy.dim(), 0);
    EXPECT_TRUE(at::equal(copy, one)) << dtype;
    EXPECT_NE(copy.const_data_ptr(), one.const_data_ptr());
    EXPECT_TRUE(number_of(one).is_in(copy));
    EXPECT_FALSE(number_of(at::zeros({}, dtype)).is_in(copy));
  }
  const auto complex = c10::complex<double>(1.5, -2.5); // all of 16 bytes
  EXPECT_EQ(leaf_of(at::scalar_tensor(complex, at::kComplexDouble)).item().toComplexDouble(), complex);
}

TEST(NumberTest, EqualOnlyIfAllBitsAndTheDtypeAre) {
  const at::Tensor nan = float_of(0x7fc00000);
  EXPECT_EQ(number_of(nan), number_of(nan.clone()));
  EXPECT_NE(number_of(nan), number_of(float_of(0x7fc00001))) << "another NaN";
  EXPECT_NE(number_of(at::scalar_tensor(0.0)), number_of(at::scalar_tensor(-0.0)));
  EXPECT_NE(number_of(at::ones({}, at::kByte)), number_of(at::ones({}, at::kBool)));
  EXPECT_NE(number_of(at::zeros({}, at::kFloat)), number_of(at::zeros({}, at::kInt)));
  at::Tensor wrapped = at::ones({}, at::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_NE(number_of(wrapped), number_of(at::ones({}, at::kDouble)));
  EXPECT_TRUE(leaf_of(wrapped).unsafeGetTensorImpl()->is_wrapped_number());
}

// ---- the cache ----

class NumberCacheTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    context_.numbers().clear();
  }
  // What the device has cached for a number; it must have been used.
  at::Tensor cached(const at::Tensor& number) {
    return context_.numbers().find(number_of(number));
  }

  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
  const at::Tensor three = at::full({}, 3.0F);
  NumberCache cache_;
};

TEST_F(NumberCacheTest, FindsWhatWasAddedUntilItIsCleared) {
  EXPECT_FALSE(cache_.find(number_of(three)).defined());
  const at::Tensor leaf = leaf_of(three);
  cache_.add(number_of(three), leaf);
  EXPECT_TRUE(cache_.find(number_of(three.clone())).is_same(leaf));
  EXPECT_FALSE(cache_.find(number_of(at::full({}, 4.0F))).defined());
  EXPECT_EQ(count("DeviceDataCacheHit"), 1);
  EXPECT_EQ(count("DeviceDataCacheMiss"), 2);
  cache_.clear();
  EXPECT_FALSE(cache_.find(number_of(three)).defined());
}

TEST_F(NumberCacheTest, KeepsAsManyAsTheFlagSaysTheLeastRecentlyUsedLeaveFirst) {
  const ScopedFlag<int64_t> size(config().device_data_cache_size, 3);
  for (int i = 0; i < 10; ++i) {
    const at::Tensor number = at::full({}, i);
    cache_.add(number_of(number), leaf_of(number));
    cache_.find(number_of(at::full({}, 0)));
  }
  EXPECT_EQ(cache_.size(), 3);
  EXPECT_TRUE(cache_.find(number_of(at::full({}, 0))).defined()) << "it is used all the time";
  EXPECT_FALSE(cache_.find(number_of(at::full({}, 7))).defined());
}

TEST_F(NumberCacheTest, SizeZeroKeepsNone) {
  cache_.add(number_of(three), leaf_of(three));
  const ScopedFlag<int64_t> size(config().device_data_cache_size, 0);
  reset_metrics();
  EXPECT_FALSE(cache_.find(number_of(three)).defined());
  cache_.add(number_of(three), leaf_of(three));
  EXPECT_EQ(cache_.size(), 0);
  expect_equal(x * three, cpu * 3);
  EXPECT_EQ(count("DeviceDataCacheMiss"), 0);
}

TEST_F(NumberCacheTest, ALeafThatSomebodyWroteIsNotFound) {
  expect_equal(x * three, cpu * 3);
  cached(three).fill_(100); // what no kernel may do
  EXPECT_FALSE(cached(three).defined());
  expect_equal(x * three, cpu * 3);
  EXPECT_TRUE(at::equal(cached(three), three));
}

// ---- recording ----

TEST_F(NumberCacheTest, ANumberThatIsUsedAgainIsCopiedOnce) {
  std::vector<at::Tensor> results;
  for (int i = 0; i < 5; ++i) {
    results.push_back(x * three);
  }
  EXPECT_EQ(count("DeviceDataCacheMiss"), 1);
  EXPECT_EQ(count("DeviceDataCacheHit"), 4);
  for (const at::Tensor& result : results) {
    expect_equal(result, cpu * 3);
  }
  at::Tensor wrapped = at::full({}, 3.0, at::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  expect_equal(x * wrapped, cpu * 3);
  EXPECT_EQ(context_.numbers().size(), 2);
}

TEST_F(NumberCacheTest, EachUseIsALeafOfItsOwn) {
  // Or two numbers that happen to be equal once would make another graph.
  const auto record = [&](float a, float b) { return x * at::full({}, a) + at::full({}, b); };
  computation_cache().clear();
  expect_equal(record(2, 5), cpu * 2 + 5);
  expect_equal(record(4, 4), cpu * 4 + 4);
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(NumberCacheTest, ATensorThatChangesAfterwardsIsAnotherNumber) {
  at::Tensor number = three.clone();
  const at::Tensor before = x * number;
  number.fill_(7);
  const at::Tensor after = x * number;
  expect_equal(before, cpu * 3);
  expect_equal(after, cpu * 7);
}

TEST_F(NumberCacheTest, DevicesHaveTheirOwn) {
  expect_equal(x * three, cpu * 3);
  EXPECT_TRUE(cached(three).defined());
  EXPECT_FALSE(DeviceContext::get(1).numbers().find(number_of(three)).defined());
}

TEST_F(NumberCacheTest, OpsOfOtherLibrariesGetCopies) {
  const at::Tensor y = test_ops::first(x, three);
  expect_equal(y, cpu);
  EXPECT_EQ(context_.numbers().size(), 0);
  EXPECT_EQ(count("DeviceDataCacheMiss"), 0);
}

// ---- nobody writes a cached number ----

class CachedLeafTest : public NumberCacheTest {
 protected:
  // Runs a program of one leaf, the number in the cache. Returns its results.
  template <typename Program>
  std::vector<at::Tensor> run(Program program) {
    cache_.add(number_of(three), leaf_of(three));
    Job job;
    const Value leaf = job.trace.add_device_data(
        cache_.find(number_of(three)),
        Geometry::contiguous(at::kFloat, {}),
        {.read_only = true});
    job.roots = program(job.trace, leaf);
    Worker worker("test");
    std::vector<FutureContentsPtr> data;
    for (const Value root : job.roots) {
      job.layouts.push_back(&job.trace.layout(root));
      job.results.push_back(data.emplace_back(c10::make_intrusive<FutureContents>(worker, 0)));
    }
    for (const FailurePtr& failure : run_job(std::move(job)).failures) {
      ADD_FAILURE() << error_of([&] { std::rethrow_exception(failure->error); });
    }
    std::vector<at::Tensor> results;
    for (const FutureContentsPtr& result : data) {
      results.push_back(make_cpu_tensor(result->memory, Geometry::contiguous(at::kFloat, {})));
    }
    return results;
  }
  const void* address() {
    return cache_.find(number_of(three)).const_data_ptr();
  }
};

TEST_F(CachedLeafTest, InPlaceOpsWriteACopy) {
  const auto results = run([](Trace& trace, Value leaf) { return std::vector{add_add_(trace, {leaf}, {leaf})}; });
  EXPECT_EQ(results[0].item<float>(), 6);
  ASSERT_TRUE(cache_.find(number_of(three)).defined()) << "it has been written";
  EXPECT_NE(results[0].const_data_ptr(), address());
}

TEST_F(CachedLeafTest, AKernelThatReturnsItsArgumentReturnsACopy) {
  static const OpInfo& same = make_op("lazyplug_backend_test::same");
  const auto results = run([](Trace& trace, Value leaf) {
    const Value returned = add_simple(trace, same, {{leaf}}, floats({}));
    const Value written = add_simple(trace, same, {{leaf}}, floats({}));
    return std::vector{returned, add_add_(trace, {written}, {leaf}), leaf};
  });
  ASSERT_TRUE(cache_.find(number_of(three)).defined()) << "it has been written";
  EXPECT_EQ(results[0].item<float>(), 3);
  EXPECT_EQ(results[1].item<float>(), 6);
  EXPECT_EQ(results[2].item<float>(), 3);
  for (at::Tensor result : results) {
    EXPECT_NE(result.const_data_ptr(), address());
    result.fill_(100); // what the user may do
  }
  EXPECT_TRUE(cache_.find(number_of(three)).defined());
}

TEST_F(CachedLeafTest, WhatHasLeftTheCacheMayBeDonated) {
  const void* memory = nullptr;
  const auto results = run([&](Trace& trace, Value leaf) {
    memory = address();
    cache_.clear();
    return std::vector{add_add_(trace, {leaf}, {leaf})};
  });
  EXPECT_EQ(results[0].item<float>(), 6);
  EXPECT_EQ(results[0].const_data_ptr(), memory);
}

TEST_F(CachedLeafTest, InputsOfAGraphAreCopies) {
  const at::Tensor y = x * three;
  graph_inputs({y}).values[1].toTensor().fill_(100);
  expect_equal(y, cpu * 3);
  expect_equal(x * three, cpu * 3);
  EXPECT_EQ(count("DeviceDataCacheMiss"), 1);
}

} // namespace
} // namespace lazyplug
