#include "backend/ops/float_numbers.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

#include <ATen/ops/scalar_tensor.h>

#include <cmath>

namespace lazyplug {
namespace {

class FloatNumbersTest : public BackendTest {
 protected:
  static Geometry operand(at::ScalarType dtype, bool wrapped_number = false) {
    Geometry geometry = Geometry::contiguous(dtype, {});
    geometry.wrapped_number = wrapped_number;
    return geometry;
  }
  static bool takes_them(const char* name, const char* overload, std::vector<Geometry> operands) {
    Signature signature;
    signature.op = &op_info(name, overload);
    signature.operands = std::move(operands);
    return takes_float_numbers(signature);
  }
  static std::optional<float> converted(const at::Scalar& number, at::ScalarType dtype) {
    return as_float(*at::scalar_tensor(number, dtype).unsafeGetTensorImpl());
  }
};

TEST_F(FloatNumbersTest, ArithmeticNextToFloat) {
  const Geometry number = operand(at::kDouble, /*wrapped_number=*/true);
  EXPECT_TRUE(takes_them("aten::mul", "Tensor", {operand(at::kFloat), number}));
  EXPECT_TRUE(takes_them("aten::sub", "Tensor", {number, operand(at::kFloat)}));
  EXPECT_TRUE(takes_them("aten::add_", "Tensor", {operand(at::kFloat), number}));
  EXPECT_FALSE(takes_them("aten::mul", "Tensor", {operand(at::kHalf), number}));
  EXPECT_FALSE(takes_them("aten::mul", "Tensor", {operand(at::kFloat, /*wrapped_number=*/true), number}));
  EXPECT_FALSE(takes_them("aten::maximum", "", {operand(at::kFloat), number}));
}

TEST_F(FloatNumbersTest, NumbersAreRoundedAsKernelsRoundThem) {
  EXPECT_EQ(converted(0.1, at::kDouble), 0.1F);
  EXPECT_EQ(converted(int64_t{16777217}, at::kLong), 16777216.0F);
  EXPECT_EQ(converted(1e39, at::kDouble), INFINITY);
  EXPECT_EQ(converted(true, at::kBool), std::nullopt);
  EXPECT_EQ(converted(0.5, at::kHalf), std::nullopt);
}

} // namespace
} // namespace lazyplug
