#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeHistc : public BackendTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
  const at::Tensor x = to_lazy(at::tensor({4, 0, 1, 1, 3, 7, -2}, at::kInt));
};

TEST_F(NativeHistc, IntegersAreCountedInIntegers) {
  expect_equal(at::histc(x, 4, 0, 3), at::tensor({1, 2, 0, 1}, at::kInt));
  EXPECT_EQ(count("Flush"), 1);
}

TEST_F(NativeHistc, BoundsThatAreEqualAreTheData) {
  expect_equal(at::histc(x, 3), at::tensor({2, 3, 2}, at::kInt));
  expect_equal(at::histc(to_lazy(at::full({5}, 9, at::kLong)), 2), at::tensor({0, 5}, at::kLong));
  expect_equal(at::histc(at::empty({0}, on_lazy(at::kInt)), 2), at::tensor({0, 0}, at::kInt));
}

TEST_F(NativeHistc, WritesAndResizesOut) {
  at::Tensor out = at::empty({0}, on_lazy(at::kInt));
  EXPECT_TRUE(at::histc_out(out, x, 4, 0, 3).is_same(out));
  expect_equal(out, at::tensor({1, 2, 0, 1}, at::kInt));
}

TEST_F(NativeHistc, FloatsAreTheCpusAffair) {
  const at::Tensor floats = iota({20});
  expect_equal(at::histc(to_lazy(floats), 6, 0, 19), at::histc(floats, 6, 0, 19));
}

TEST_F(NativeHistc, ChecksItsArguments) {
  EXPECT_TRUE(contains(error_of([&] { at::histc(x, 0); }), "bins must be > 0"));
  EXPECT_TRUE(contains(error_of([&] { at::histc(x, 2, 3, 2); }), "max must be larger than min"));
}

} // namespace
} // namespace lazyplug
