#include "common/fail_point.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class FailPoints : public BackendTest, public testing::WithParamInterface<FailPoint> {
 protected:
  void TearDown() override {
    arm(FailPoint::kNone);
  }

  const at::Tensor x = to_lazy(iota({2, 3}));
  const at::Tensor cpu = iota({2, 3});
};

constexpr const char* kMessage = "injected failure";

TEST_P(FailPoints, TheReaderIsToldAndTheNextStepWorks) {
  const at::Tensor untouched = x * 5;
  context_.synchronize();
  const at::Tensor y = x + 1;
  const at::Tensor z = x * 2;
  arm(GetParam());
  EXPECT_TRUE(contains(error_of([&] { y.cpu(); }), kMessage));
  expect_equal(untouched, cpu * 5);
  expect_equal(x + 1, cpu + 1);
  if (GetParam() == FailPoint::kDelivery) {
    expect_equal(z, cpu * 2); // its own delivery succeeded
  } else {
    EXPECT_TRUE(contains(error_of([&] { z.cpu(); }), kMessage));
  }
}

TEST_P(FailPoints, OnTheWorkerTheErrorWaitsForWhoeverWaits) {
  const at::Tensor y = x + 1;
  arm(GetParam());
  context_.flush();
  while (armed_fail_point != FailPoint::kNone) {
  }
  const at::Tensor z = x * 3; // recorded while the failure is on its way
  EXPECT_TRUE(contains(error_of([&] { context_.synchronize(); }), kMessage));
  expect_equal(z, cpu * 3);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none") << "it is raised once";
}

TEST_P(FailPoints, LaterJobsInheritIt) {
  const at::Tensor y = x + 1;
  arm(GetParam());
  context_.flush();
  // While it is recorded, if the job has failed by then, or when it is read.
  EXPECT_TRUE(contains(error_of([&] { (y * 2).cpu(); }), kMessage));
  const at::Tensor independent = x * 2;
  expect_equal(independent, cpu * 2);
}

TEST_P(FailPoints, AWrittenTensorHealsWhenItIsOverwritten) {
  at::Tensor y = x.clone();
  context_.synchronize();
  y.add_(1);
  arm(GetParam());
  EXPECT_TRUE(contains(error_of([&] { y.cpu(); }), kMessage));
  y.copy_(cpu);
  expect_equal(y + 1, cpu + 1);
}

INSTANTIATE_TEST_SUITE_P(
    EveryPoint,
    FailPoints,
    testing::Values(FailPoint::kCompile, FailPoint::kInputs, FailPoint::kRun, FailPoint::kDelivery));

} // namespace
} // namespace lazyplug
