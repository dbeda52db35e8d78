#include "lowering/calls/optimizer_programs.h"

#include <gtest/gtest.h>

#include "kernels/tile_program.h"
#include "test/cpp/common/scoped_flag.h"

namespace lazyplug {
namespace {

// What they compute is tested where they are used: test/python/test_optimizer_steps.py.
TEST(OptimizerProgramsTest, SayWhatTheyWrite) {
  const Update& adam = *update_of(Optimizer::kAdam, {.decays = true});
  EXPECT_EQ(adam.num_writes, (std::vector<size_t>{2, 1, 2, 0}));
  EXPECT_EQ(kernels::parse(adam.program)->num_numbers, 7);
  const Update& sgd = *update_of(Optimizer::kSGD, {.dtype = at::kDouble, .has_momentum = true});
  EXPECT_EQ(sgd.num_writes, (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(kernels::parse(sgd.program)->dtype, c10::ScalarType::Double);
  EXPECT_EQ(
      update_of(Optimizer::kSGD, {.maximizes = true, .adds_weights = true})->program,
      "f32 memory 2 slots 3 numbers 2 2 = neg 1 ; 2 = add 2 0 0 ; 0 = add 0 2 1 ;");
}

TEST(OptimizerProgramsTest, NesterovsMethodChangesGradientsThatNothingIsAddedTo) {
  UpdateForm form{.has_momentum = true, .is_nesterov = true};
  EXPECT_TRUE(form.writes_gradients());
  EXPECT_EQ(update_of(Optimizer::kSGD, form)->num_writes, (std::vector<size_t>{1, 2, 1}));
  form.adds_weights = true;
  EXPECT_FALSE(form.writes_gradients());
  EXPECT_EQ(update_of(Optimizer::kSGD, form)->num_writes, (std::vector<size_t>{1, 2, 0}));
}

TEST(OptimizerProgramsTest, EachFormHasItsOwn) {
  const Update& plain = *update_of(Optimizer::kRMSprop, {});
  EXPECT_EQ(update_of(Optimizer::kRMSprop, {}), &plain);
  const Update& centered = *update_of(Optimizer::kRMSprop, {.is_centered = true});
  EXPECT_EQ(centered.num_writes, (std::vector<size_t>{1, 2, 1, 0}));
  EXPECT_NE(update_of(Optimizer::kRMSprop, {.has_momentum = true})->program, plain.program);
  EXPECT_EQ(update_of(Optimizer::kAdam, {.keeps_maximum = true})->num_writes, (std::vector<size_t>{1, 1, 2, 1, 0}));
}

TEST(OptimizerProgramsTest, SquareRootsAreThoseOfForeachCalls) {
  {
    const ScopedFlag<int64_t> fusion(config().fusion, 1);
    EXPECT_NE(update_of(Optimizer::kAdam, {})->program.find("sqrt 2"), std::string::npos);
  }
  const ScopedFlag<int64_t> fusion(config().fusion, 3);
  EXPECT_EQ(update_of(Optimizer::kAdam, {.dtype = at::kDouble})->program.find("sqrt_exact"), std::string::npos);
}

TEST(OptimizerProgramsTest, AreForFloats) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(has_updates(dtype));
  }
  EXPECT_FALSE(has_updates(at::kInt));
  EXPECT_FALSE(has_updates(at::kComplexFloat));
}

TEST(OptimizerProgramsTest, EachStepOnNarrowFloatsIsRounded) {
  const Update& rmsprop = *update_of(Optimizer::kRMSprop, {.dtype = at::kBFloat16});
  EXPECT_EQ(
      rmsprop.program,
      "f32 memory 3 slots 4 numbers 4 1 = mul_number 1 0 ; 1 = to_bfloat16 1 ; 1 = addcmul 1 2 2 1 ; "
      "1 = to_bfloat16 1 ; 3 = sqrt_exact 1 ; 3 = to_bfloat16 3 ; 3 = add_number 3 2 ; 3 = to_bfloat16 3 ; "
      "0 = addcdiv 0 2 3 3 ; 0 = to_bfloat16 0 ;");
  EXPECT_EQ(rmsprop.num_writes, update_of(Optimizer::kRMSprop, {})->num_writes);
  const Update* maximized = update_of(Optimizer::kAdam, {.dtype = at::kHalf, .maximizes = true});
  EXPECT_NE(maximized->program.find("= neg 3 ; 1 = lerp"), std::string::npos) << "what is exact is not rounded";
}

TEST(OptimizerProgramsTest, ThereAreNoneWhereMultiplesOfNarrowFloatsAreAdded) {
  EXPECT_EQ(update_of(Optimizer::kSGD, {.dtype = at::kHalf}), nullptr);
  EXPECT_EQ(update_of(Optimizer::kAdam, {.dtype = at::kBFloat16, .adds_weights = true}), nullptr);
  EXPECT_NE(update_of(Optimizer::kAdam, {.dtype = at::kBFloat16, .decays = true}), nullptr);
}

} // namespace
} // namespace lazyplug
