#include "backend/ops/traced_ops.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

bool traced(const char* name, const char* overload = "") {
  return is_traced(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

TEST(TracedOps, OpsWithACpuOrComposedKernelAreTraced) {
  EXPECT_TRUE(traced("aten::add", "Tensor"));
  EXPECT_TRUE(traced("aten::mm"));
  EXPECT_TRUE(traced("aten::zeros"));
  EXPECT_TRUE(traced("aten::native_batch_norm"));
}

TEST(TracedOps, ACpuKernelCountsMoreThanADifferentiableComposition) {
  EXPECT_TRUE(traced("aten::silu_backward"));
  EXPECT_FALSE(traced("aten::matmul"));
  EXPECT_FALSE(traced("aten::reshape"));
}

TEST(TracedOps, ViewsAndMetadataAreNot) {
  EXPECT_FALSE(traced("aten::transpose", "int"));
  EXPECT_FALSE(traced("aten::t_"));
  EXPECT_FALSE(traced("aten::resize_"));
}

TEST(TracedOps, OpsThatCannotBeRecordedAreNot) {
  EXPECT_FALSE(traced("aten::nonzero"));
  EXPECT_FALSE(traced("aten::equal"));
  EXPECT_FALSE(traced("aten::_linalg_check_errors"));
}

TEST(TracedOps, OpsOnListsAre) {
  EXPECT_TRUE(traced("aten::_foreach_add", "List"));
  EXPECT_TRUE(traced("aten::_foreach_norm", "Scalar"));
}

TEST(TracedOps, RandomOpsNeedAGeneratorArgument) {
  EXPECT_TRUE(traced("aten::normal_"));
  EXPECT_FALSE(traced("aten::rand_like"));
}

} // namespace
} // namespace lazyplug
