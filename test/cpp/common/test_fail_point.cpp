#include "common/fail_point.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lazyplug {
namespace {

class FailPointTest : public testing::Test {
 protected:
  void TearDown() override {
    arm(FailPoint::kNone);
  }

  static bool raises(FailPoint point) {
    try {
      pass(point);
    } catch (const c10::Error& error) {
      EXPECT_EQ(std::string(error.what_without_backtrace()), "injected failure");
      return true;
    }
    return false;
  }
};

TEST_F(FailPointTest, NothingFailsUnlessArmed) {
  EXPECT_FALSE(raises(FailPoint::kRun));
}

TEST_F(FailPointTest, RaisesOnce) {
  arm(FailPoint::kRun);
  EXPECT_TRUE(raises(FailPoint::kRun));
  EXPECT_EQ(armed_fail_point, FailPoint::kNone);
  EXPECT_FALSE(raises(FailPoint::kRun));
}

TEST_F(FailPointTest, RaisesAfterSoManyPassesOfItsOwn) {
  arm(FailPoint::kCompile, /*passes=*/2);
  EXPECT_FALSE(raises(FailPoint::kCompile));
  EXPECT_FALSE(raises(FailPoint::kDelivery));
  EXPECT_FALSE(raises(FailPoint::kCompile));
  EXPECT_EQ(armed_fail_point, FailPoint::kCompile);
  EXPECT_TRUE(raises(FailPoint::kCompile));
}

TEST_F(FailPointTest, CountsThePassesOfAllThreads) {
  arm(FailPoint::kRun, /*passes=*/1);
  std::thread([] { EXPECT_FALSE(raises(FailPoint::kRun)); }).join();
  EXPECT_TRUE(raises(FailPoint::kRun));
}

TEST_F(FailPointTest, ArmingAnotherReplacesIt) {
  arm(FailPoint::kRun);
  arm(FailPoint::kInputs);
  EXPECT_FALSE(raises(FailPoint::kRun));
  EXPECT_TRUE(raises(FailPoint::kInputs));
}

} // namespace
} // namespace lazyplug
