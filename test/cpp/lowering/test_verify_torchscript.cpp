#include "lowering/verify_torchscript.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

const char* const kDouble = R"(
graph(%a : Float(2, strides=[1]), %n : int):
  %b : Float(2, strides=[1]) = aten::add_[overload="Tensor", origin=1](%a, %a, %n)
  return (%b)
)";

ComputationInputs inputs() {
  return {{at::tensor({1.F, -0.F})}, {c10::IValue(1)}};
}

TEST(VerifyTorchScript, TakesTheSameBits) {
  verify_torchscript(kDouble, inputs(), {{at::tensor({2.F, -0.F}), nullptr}});
}

TEST(VerifyTorchScript, RefusesAnyOther) {
  EXPECT_THROW(verify_torchscript(kDouble, inputs(), {{at::tensor({2.F, 0.F}), nullptr}}), c10::Error) << "a sign";
  EXPECT_THROW(verify_torchscript(kDouble, inputs(), {{at::tensor({2.0, -0.0}), nullptr}}), c10::Error) << "a dtype";
  EXPECT_THROW(verify_torchscript(kDouble, inputs(), {}), c10::Error) << "fewer results";
}

TEST(CopyInputs, ShareNoMemory) {
  const ComputationInputs from{{at::arange(6, at::kFloat).view({2, 3}).t(), at::Tensor()}, {c10::IValue(2)}};
  const ComputationInputs copies = copy_inputs(from);
  EXPECT_TRUE(copies.leaves[0].equal(from.leaves[0]));
  EXPECT_EQ(copies.leaves[0].strides(), from.leaves[0].strides());
  EXPECT_NE(copies.leaves[0].data_ptr(), from.leaves[0].data_ptr());
  EXPECT_FALSE(copies.leaves[1].defined());
  EXPECT_EQ(copies.scalars.at(0).toInt(), 2);
}

} // namespace
} // namespace lazyplug
