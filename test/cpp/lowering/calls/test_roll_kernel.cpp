#include "lowering/calls/roll_kernel.h"

#include <ATen/ATen.h>

#include "test/cpp/lowering/exact_call.h"

namespace lazyplug {
namespace {

using Numbers = std::vector<int64_t>;

bool is_rolled(const at::Tensor& self, const Numbers& shifts, const Numbers& dims) {
  return is_computed_exactly("aten::roll", {self, shifts, dims});
}

TEST(RollKernelTest, RollsDimensions) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kBool, at::kBFloat16, at::kComplexFloat}) {
    const at::Tensor self = at::arange(60).reshape({3, 4, 5}).to(dtype);
    for (const int64_t shift : {-9, -4, -1, 0, 1, 2, 3, 5, 17}) {
      for (const int64_t dim : {-3, -1, 0, 1, 2}) {
        EXPECT_TRUE(is_rolled(self, {shift}, {dim}));
      }
      EXPECT_TRUE(is_rolled(self, {shift, 1}, {0, 2}));
      EXPECT_TRUE(is_rolled(self, {1, shift, -2}, {2, 1, 2}));
    }
  }
  EXPECT_TRUE(is_rolled(at::arange(7), {2}, {0}));
}

TEST(RollKernelTest, LeavesTheRestToPyTorch) {
  const at::Tensor self = at::randn({3, 4});
  EXPECT_TRUE(is_rolled(self, {1}, {0}));
  EXPECT_FALSE(is_rolled(self, {1}, {})) << "as one dimension";
  EXPECT_FALSE(is_rolled(self, {1, 2}, {0}));
  EXPECT_FALSE(is_rolled(self, {1}, {2}));
  EXPECT_FALSE(is_rolled(self.t(), {1}, {0}));
  EXPECT_FALSE(is_rolled(self.slice(0, 0, 0), {1}, {0}));
  EXPECT_FALSE(is_rolled(at::randn({}), {}, {}));
  EXPECT_FALSE(is_rolled(at::randn({200, 200}), {1}, {0}));
}

} // namespace
} // namespace lazyplug
