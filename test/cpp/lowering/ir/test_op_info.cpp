#include "lowering/ir/op_info.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

std::vector<ArgKind> kinds(const OpInfo& op) {
  std::vector<ArgKind> result;
  for (const ArgInfo& arg : op.args()) {
    result.push_back(arg.kind);
  }
  return result;
}

std::vector<size_t> written(const OpInfo& op) {
  std::vector<size_t> result;
  for (size_t i = 0; i < op.num_args(); ++i) {
    if (op.args()[i].written) {
      result.push_back(i);
    }
  }
  return result;
}

TEST(OpInfo, Names) {
  const OpInfo& op = make_op("aten::add", "Tensor");
  EXPECT_EQ(op.name(), "aten::add.Tensor");
  EXPECT_EQ(op.base_name(), "aten::add");
}

TEST(OpInfo, ClassifiesArguments) {
  using enum ArgKind;
  EXPECT_EQ(kinds(make_op("aten::add", "Tensor")), std::vector({kTensor, kTensor, kScalar}));
  EXPECT_EQ(kinds(make_op("aten::cat")), std::vector({kTensorList, kConstant}));
  EXPECT_EQ(kinds(make_op("aten::index", "Tensor")), std::vector({kTensor, kTensorList})) << "Tensor?[]";
  EXPECT_EQ(kinds(make_op("aten::bernoulli_", "float")), std::vector({kTensor, kScalar, kGenerator}));
  EXPECT_EQ(kinds(make_op("aten::clamp")), std::vector({kTensor, kScalar, kScalar})) << "Scalar?";
  EXPECT_EQ(kinds(make_op("aten::full")), std::vector({kConstant, kScalar, kConstant, kConstant, kDevice, kConstant}));
}

TEST(OpInfo, WrittenArgumentsComeFromTheSchema) {
  EXPECT_FALSE(make_op("aten::add", "Tensor").writes());
  EXPECT_TRUE(make_op("aten::add_", "Tensor").writes());
  EXPECT_EQ(written(make_op("aten::add_", "Tensor")), std::vector<size_t>({0}));
  EXPECT_EQ(written(make_op("aten::sort", "values")), std::vector<size_t>({3, 4}));
  EXPECT_EQ(written(make_op("aten::_foreach_add_", "Scalar")), std::vector<size_t>({0}));
}

TEST(OpInfo, ReturnsKnowWhatTheyAlias) {
  EXPECT_EQ(make_op("aten::add", "Tensor").return_aliases(), std::vector<int>({-1}));
  EXPECT_EQ(make_op("aten::add_", "Tensor").return_aliases(), std::vector<int>({0}));
  EXPECT_EQ(make_op("aten::add", "out").return_aliases(), std::vector<int>({3}));
  EXPECT_EQ(make_op("aten::sort", "values").return_aliases(), std::vector<int>({3, 4}));
  EXPECT_FALSE(make_op("aten::add", "Tensor").returns_only_arguments());
  EXPECT_TRUE(make_op("aten::sort", "values").returns_only_arguments());
  EXPECT_FALSE(make_op("aten::_native_batch_norm_legit", "").returns_only_arguments()) << "though it writes";
}

TEST(OpInfo, PointwiseOpsAreKnownByTheirTagUnlessTraitsSayOtherwise) {
  EXPECT_EQ(make_op("aten::add", "Tensor").fusion(), FusionClass::kPointwise);
  EXPECT_EQ(make_op("aten::mm").fusion(), FusionClass::kNone);
  EXPECT_EQ(make_op("aten::add", "Tensor", {.fusion = FusionClass::kNone}).fusion(), FusionClass::kNone);
  EXPECT_EQ(make_op("aten::mm", "", {.fusion = FusionClass::kPointwise}).fusion(), FusionClass::kPointwise);
}

TEST(OpInfo, RandomOpsAreKnownByTheirTag) {
  EXPECT_TRUE(make_op("aten::bernoulli_", "float").random());
  EXPECT_FALSE(make_op("aten::relu").random());
}

TEST(OpInfo, PlainOpsAreTraceable) {
  for (const auto& [name, overload] : std::vector<std::pair<const char*, const char*>>{
           {"aten::add", "Tensor"},
           {"aten::add_", "Tensor"},
           {"aten::add", "out"},
           {"aten::split_with_sizes_copy", ""},
           {"aten::native_layer_norm", ""},
           {"aten::full", ""},
           {"aten::index_put", ""}}) {
    const OpInfo& op = make_op(name, overload);
    EXPECT_TRUE(op.traceable()) << op.name() << ": " << op.not_traceable_because();
  }
}

TEST(OpInfo, TellsWhyAnOpIsNotTraceable) {
  EXPECT_EQ(make_op("aten::nonzero").not_traceable_because(), "output depends on data");
  EXPECT_EQ(make_op("aten::equal").not_traceable_because(), "output depends on data");
  EXPECT_EQ(make_op("aten::transpose", "int").not_traceable_because(), "returns a view");
  EXPECT_EQ(make_op("aten::is_set_to").not_traceable_because(), "returns bool");
  EXPECT_EQ(make_op("aten::set_", "source_Storage").not_traceable_because(), "argument of type Storage");
}

TEST(OpInfo, TraitsAddHiddenWrites) {
  const OpTraits traits{.hidden_writes = {"running_mean", "running_var"}, .hidden_writes_if = "training"};
  const OpInfo& op = make_op("aten::native_batch_norm", "", traits);
  EXPECT_TRUE(op.writes());
  EXPECT_TRUE(op.writes_argument(3, /*with_hidden=*/true));
  EXPECT_TRUE(op.writes_argument(4, /*with_hidden=*/true));
  EXPECT_FALSE(op.writes_argument(0, /*with_hidden=*/true));
  EXPECT_FALSE(op.writes_argument(3, /*with_hidden=*/false));
  EXPECT_FALSE(op.args()[3].written) << "the schema does not say so";
  EXPECT_EQ(op.hidden_writes_if(), 5);
  EXPECT_EQ(make_op("aten::native_batch_norm").hidden_writes_if(), -1);
}

TEST(OpInfo, TraitsMakeScalarsConstantsAndAllowCpuIndices) {
  const OpInfo& arange = make_op("aten::arange", "start_step", {.scalars_are_constants = true});
  EXPECT_EQ(kinds(arange)[0], ArgKind::kConstant);
  EXPECT_EQ(make_op("aten::index", "Tensor", {.cpu_indices = "indices"}).cpu_indices(), 1);
  EXPECT_EQ(make_op("aten::index", "Tensor").cpu_indices(), -1);
}

TEST(OpInfo, TraitsLetTheMetaKernelDecideAboutTheShape) {
  EXPECT_FALSE(make_op("aten::index", "Tensor").traceable());
  EXPECT_TRUE(make_op("aten::index", "Tensor", {.shape_may_be_static = true}).traceable());
  EXPECT_FALSE(make_op("aten::equal", "", {.shape_may_be_static = true}).traceable());
}

TEST(OpInfo, OpsWithoutAnyEffectOnTensorsAreNotTraceable) {
  EXPECT_EQ(make_op("aten::_assert_async").not_traceable_because(), "has no result");
  EXPECT_TRUE(make_op("aten::_foreach_add_", "Scalar").traceable()) << "returns nothing but writes";
}

TEST(OpInfo, TraitsThatNameNoArgumentRaise) {
  EXPECT_THROW(make_op("aten::relu", "", {.hidden_writes = {"running_mean"}}), c10::Error);
  EXPECT_THROW(make_op("aten::relu", "", {.hidden_writes_if = "training"}), c10::Error);
  EXPECT_THROW(make_op("aten::relu", "", {.cpu_indices = "indices"}), c10::Error);
}

} // namespace
} // namespace lazyplug
