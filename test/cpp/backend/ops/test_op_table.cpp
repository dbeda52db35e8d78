#include "backend/ops/op_table.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

c10::Stack nothing(c10::ArrayRef<c10::IValue> /*arguments*/) {
  return {};
}

c10::DimVector no_strides(const Answered& /*call*/) {
  return {};
}

torch::CppFunction no_kernel(const OpInfo& /*op*/) {
  return torch::CppFunction::makeFallthrough();
}

TEST(OpTable, KnowsNothingOfOpsWithoutARow) {
  const OpTable table({{.op = "aten::add.Tensor", .traits = {.infer_on_cpu = true}}});
  const c10::OperatorName op("aten::add", "out");
  EXPECT_EQ(table.traits(op), OpTraits());
  EXPECT_FALSE(table.is_left_alone(op));
  EXPECT_EQ(table.layouts(op), nullptr);
  EXPECT_EQ(table.shape(op), nullptr);
  EXPECT_EQ(table.fast(op), nullptr);
}

TEST(OpTable, TraitsLayoutsAndLeavingAloneHoldForAllOverloads) {
  const OpTable table(
      {{.op = "aten::add", .left_alone = true, .traits = {.infer_on_cpu = true}, .layouts = {no_strides}}});
  for (const char* overload : {"", "out", "Tensor"}) {
    const c10::OperatorName op("aten::add", overload);
    EXPECT_TRUE(table.traits(op).infer_on_cpu) << overload;
    EXPECT_TRUE(table.is_left_alone(op)) << overload;
    ASSERT_NE(table.layouts(op), nullptr) << overload;
    EXPECT_EQ(table.layouts(op)->size(), 1) << overload;
  }
}

TEST(OpTable, ShapesAndFastPathsHoldForOneOverload) {
  const OpTable table(
      {{.op = "aten::add", .shape = nothing, .fast = {"aten::add", "", no_kernel, no_kernel}},
       {.op = "aten::sub.out", .shape = nothing}});
  EXPECT_NE(table.shape({"aten::add", ""}), nullptr);
  EXPECT_NE(table.fast({"aten::add", ""}), nullptr);
  EXPECT_EQ(table.shape({"aten::add", "out"}), nullptr);
  EXPECT_EQ(table.fast({"aten::add", "out"}), nullptr);
  EXPECT_NE(table.shape({"aten::sub", "out"}), nullptr);
  EXPECT_EQ(table.shape({"aten::sub", ""}), nullptr);
}

TEST(OpTable, ARowWithAnOverloadOverrulesTheOneWithout) {
  const OpTable table(
      {{.op = "aten::add", .traits = {.infer_on_cpu = true}, .layouts = {no_strides}},
       {.op = "aten::add.out", .traits = {.is_quick = true}, .layouts = {no_strides, no_strides}}});
  EXPECT_FALSE(table.traits({"aten::add", "out"}).infer_on_cpu);
  EXPECT_TRUE(table.traits({"aten::add", "out"}).is_quick);
  EXPECT_TRUE(table.traits({"aten::add", "Tensor"}).infer_on_cpu);
  EXPECT_EQ(table.layouts({"aten::add", "out"})->size(), 2);
  EXPECT_EQ(table.layouts({"aten::add", "Tensor"})->size(), 1);
}

TEST(OpTable, ARowWithAnOverloadOverrulesOnlyWhatItStates) {
  const OpTable table(
      {{.op = "aten::add.out", .shape = nothing},
       {.op = "aten::add", .left_alone = true, .traits = {.infer_on_cpu = true}, .layouts = {no_strides}}});
  const c10::OperatorName op("aten::add", "out");
  EXPECT_TRUE(table.traits(op).infer_on_cpu);
  EXPECT_TRUE(table.is_left_alone(op));
  EXPECT_NE(table.layouts(op), nullptr);
  EXPECT_NE(table.shape(op), nullptr);
}

TEST(OpTable, RefusesTwoRowsForOneOp) {
  EXPECT_THROW(OpTable({{.op = "aten::add", .shape = nothing}, {.op = "aten::add", .left_alone = true}}), c10::Error);
}

TEST(OpTable, IsInstalledOnce) {
  EXPECT_FALSE(OpTable::get().rows().empty());
  EXPECT_THROW(OpTable::install({}), c10::Error);
}

} // namespace
} // namespace lazyplug
