#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeAssertions : public BackendTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
  const at::Tensor x = to_lazy(iota({4}));
};

TEST_F(NativeAssertions, AreRecordedAndRunThoughNobodyHoldsThem) {
  at::_assert_async(x.ge(0).all());
  EXPECT_EQ(count("Flush"), 0);
  expect_equal(x + 1, iota({4}) + 1);
  EXPECT_GE(count("lazy::_functional_assert_async"), 1);
  EXPECT_GE(count("NodesExecuted"), 4);
}

TEST_F(NativeAssertions, AreRaisedByTheNextReadOnce) {
  const at::Tensor y = x + 1;
  at::_assert_async(x.gt(0).all(), "must be positive");
  EXPECT_TRUE(contains(error_of([&] { y.cpu(); }), "must be positive"));
  expect_equal(y, iota({4}) + 1);
}

TEST_F(NativeAssertions, AreRaisedByWhoWaitsForTheDevice) {
  auto& context = DeviceContext::get(0);
  at::_assert_async(x.gt(0).all());
  context.flush();
  EXPECT_TRUE(contains(error_of([&] { context.synchronize(); }), "got zero"));
  EXPECT_EQ(error_of([&] { context.synchronize(); }), "none");
}

TEST_F(NativeAssertions, DoNotHoldAnythingOnceTheyHaveRun) {
  const at::Tensor truth = x.ge(0).all();
  const auto holders = [&] { return truth.storage().use_count(); };
  const auto before = holders();
  for (int i = 0; i < 3; ++i) {
    at::_assert_async(truth);
    DeviceContext::get(0).finish();
  }
  EXPECT_EQ(holders(), before);
}

TEST_F(NativeAssertions, SizesAreCheckedAtOnce) {
  EXPECT_TRUE(contains(error_of([&] { at::_assert_async(x); }), "more than one value is ambiguous"));
  EXPECT_TRUE(contains(error_of([&] { at::_assert_async(x.slice(0, 0, 0)); }), "no values is ambiguous"));
}

} // namespace
} // namespace lazyplug
