#include "backend/inference/dtype_trials.h"

#include "backend/inference/shape_inference.h"
#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class DtypeTrials : public BackendTest {
 protected:
  static at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, on_lazy(dtype));
  }
  static bool may_refuse(const char* name, const char* overload, const c10::Stack& stack) {
    return try_dtypes(read_call(op_info(name, overload), stack), stack).may_refuse;
  }
};

TEST_F(DtypeTrials, OfMixedDtypesTheKernelIsAsked) {
  EXPECT_FALSE(may_refuse("aten::mm", "", {lazy({200, 3}), lazy({3, 200})}));
  EXPECT_TRUE(may_refuse("aten::mm", "", {lazy({200, 3}), lazy({3, 200}, at::kDouble)}));
  EXPECT_FALSE(may_refuse("aten::mul", "Tensor", {lazy({200}), lazy({200}, at::kDouble)}));
  EXPECT_FALSE(may_refuse("aten::index_select", "", {lazy({200, 3}), 0, lazy({5}, at::kLong)}));
}

TEST_F(DtypeTrials, AlsoWhereAllAreAlike) {
  EXPECT_TRUE(may_refuse("aten::bitwise_xor", "Tensor", {lazy({200}), lazy({200})}));
  EXPECT_TRUE(may_refuse("aten::masked_fill", "Scalar", {lazy({200}), lazy({200}), 0.0}));
  EXPECT_TRUE(may_refuse("aten::_softmax", "", {lazy({2, 200}, at::kLong), 1, false}));
}

// What is refused for another reason is left to the Meta kernel.
TEST_F(DtypeTrials, ShapesAreNotItsAffair) {
  const std::vector<int64_t> sizes{200};
  const at::Tensor x = lazy({2, 200});
  const at::Tensor row = lazy({200});
  EXPECT_FALSE(may_refuse("aten::native_layer_norm", "", {x, sizes, row, row, 1e-5}));
  EXPECT_TRUE(may_refuse("aten::native_layer_norm", "", {lazy({2, 200}, at::kDouble), sizes, row, row, 1e-5}));
}

TEST_F(DtypeTrials, WhatHasRunIsAccepted) {
  const c10::Stack stack{lazy({2, 200}, at::kBFloat16), std::vector<int64_t>{200}, lazy({200}), lazy({200}), 1e-5};
  EXPECT_TRUE(may_refuse("aten::native_layer_norm", "", stack));
  const Call call = read_call(op_info("aten::native_layer_norm", ""), stack);
  accept_dtypes(call, try_dtypes(call, stack).key);
  EXPECT_FALSE(may_refuse("aten::native_layer_norm", "", stack));
}

TEST_F(DtypeTrials, UnlessThereWasNothingToCompute) {
  const c10::Stack empty{lazy({0, 200}, at::kBool), lazy({200, 200}, at::kBool)};
  const Call call = read_call(op_info("aten::mm", ""), empty);
  accept_dtypes(call, try_dtypes(call, empty).key);
  EXPECT_TRUE(may_refuse("aten::mm", "", {lazy({2, 200}, at::kBool), lazy({200, 200}, at::kBool)}));
}

TEST_F(DtypeTrials, DtypesOfResultsAreComparedWithThePromise) {
  const c10::Stack stack{lazy({20'000}, at::kDouble)};
  const Call call = read_call(op_info("aten::trunc", ""), stack);
  const DtypeTrial trial = try_dtypes(call, stack);
  EXPECT_EQ(trial.results, std::vector{at::kDouble});
  const Inference inference = infer_shapes(call, stack);
  ASSERT_TRUE(inference.signature);
  EXPECT_FALSE(contradicts(trial, *inference.signature));
  EXPECT_TRUE(contradicts({.key = trial.key, .results = {at::kFloat}}, *inference.signature));
  EXPECT_TRUE(try_dtypes(call, stack).contradicts_meta);
  EXPECT_TRUE(contradicts(try_dtypes(call, stack), *inference.signature));
}

// These take for granted that their arguments fit together.
TEST_F(DtypeTrials, KernelsThatProgramsCannotCallAreNotAsked) {
  const c10::Stack stack{lazy({200}), lazy({200}, at::kDouble)};
  EXPECT_FALSE(may_refuse("aten::sigmoid_backward", "", stack));
}

} // namespace
} // namespace lazyplug
