#include "lowering/optimizer_programs.h"

#include <gtest/gtest.h>

#include "kernels/tile_program.h"
#include "test/cpp/common/scoped_flag.h"

namespace lazyplug {
namespace {

// What they compute is tested where they are used: test/python/test_optimizer_steps.py.
TEST(OptimizerProgramsTest, SayWhatTheyWrite) {
  const Update& adam = adam_update({.decays = true});
  EXPECT_EQ(adam.num_writes, (std::vector<size_t>{2, 1, 2, 0}));
  EXPECT_EQ(kernels::parse(adam.program)->num_numbers, 7);
  const Update& sgd = sgd_update({.is_double = true, .has_momentum = true});
  EXPECT_EQ(sgd.num_writes, (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(kernels::parse(sgd.program)->dtype, c10::ScalarType::Double);
  EXPECT_EQ(
      sgd_update({.maximizes = true, .adds_weights = true}).program,
      "f32 memory 2 slots 3 numbers 2 2 = neg 1 ; 2 = add 2 0 0 ; 0 = add 0 2 1 ;");
}

TEST(OptimizerProgramsTest, SquareRootsAreThoseOfForeachCalls) {
  {
    const ScopedFlag<int64_t> fusion(config().fusion, 1);
    EXPECT_NE(adam_update({}).program.find("sqrt 2"), std::string::npos);
  }
  const ScopedFlag<int64_t> fusion(config().fusion, 3);
  EXPECT_EQ(adam_update({.is_double = true}).program.find("sqrt_exact"), std::string::npos);
}

} // namespace
} // namespace lazyplug
