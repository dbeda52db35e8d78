#include "lowering/execution/verify_torchscript.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include "test/cpp/common/scoped_flag.h"

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

TEST(VerifyTorchScript, WhatIsNotWrittenIsTheSameInBothRuns) {
  const ScopedFlag<bool> verifies(config().verify_torchscript, true);
  const char* const graph = R"(
graph(%a : Float(2, strides=[1])):
  %dtype : int = prim::Constant[value=6]()
  %many : int[] = prim::Constant[value=[1000]]()
  %two : int[] = prim::Constant[value=[2]]()
  %one : int[] = prim::Constant[value=[1]]()
  %offset : int = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %empty : Float(1000, strides=[1]) = lazyplug::empty[origin=0](%dtype, %many, %one)
  %memory : Float(1000, strides=[1]) = lazyplug::own[origin=1](%empty, %many, %one)
  %part : Float(2, strides=[1]) = lazyplug::strided_view[origin=1](%memory, %many, %one, %dtype, %two, %one, %offset, %no, %no, %no)
  %written : Tensor = aten::copy_[origin=1, writes=[0]](%part, %a, %no)
  return (%memory)
)";
  at::Tensor expected = at::zeros({1000});
  expected[1] = 1.F;
  expected[2] = 2.F;
  mallopt(M_PERTURB, 0x55); // new memory is not 0
  verify_torchscript(graph, {{at::tensor({1.F, 2.F})}, {}}, {{expected, nullptr}});
  mallopt(M_PERTURB, 0);
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
