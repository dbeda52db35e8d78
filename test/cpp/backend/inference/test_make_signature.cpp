#include "backend/inference/make_signature.h"

#include "backend/ops/op_registry.h"
#include "lowering/ir/finish_signature.h"
#include "test/cpp/backend/backend_test.h"

#include <c10/core/DefaultDtype.h>

namespace lazyplug {
namespace {

// Signatures of calls whose kernel is told to have returned these results.
class MakeSignatureTest : public BackendTest {
 protected:
  c10::intrusive_ptr<Signature> make(
      const char* name,
      const char* overload,
      const c10::Stack& stack,
      const c10::Stack& results,
      bool is_silent = true) {
    return make_signature(read_call(op_info(name, overload), stack), stack, results, c10::kMeta, is_silent);
  }
  c10::intrusive_ptr<Signature> make_add(const c10::IValue& result, const c10::IValue& alpha = 1) {
    return make("aten::add", "Tensor", {x, y, alpha}, {result});
  }
  c10::intrusive_ptr<Signature> make_layer_norm(const at::Tensor& input) {
    const std::vector<int64_t> shape = {3};
    return make(
        "aten::native_layer_norm",
        "",
        {input, shape, c10::IValue(), y, 1e-5},
        {on_meta({2, 3}), on_meta({2, 1}), on_meta({2, 1})});
  }
  static at::Tensor on_meta(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(dtype));
  }

  const at::Tensor x = at::empty({2, 3}, on_lazy());
  const at::Tensor y = at::empty({3}, on_lazy());
};

TEST_F(MakeSignatureTest, HoldsWhatIdentifiesTheCall) {
  const Call call = read_call(op_info("aten::add", "Tensor"), {x, y, 2});
  const auto signature = make_add(on_meta({2, 3}), 2);
  EXPECT_EQ(signature->op, call.op);
  EXPECT_EQ(signature->key, call.key);
  EXPECT_EQ(signature->identity, call.identity);
  EXPECT_EQ(signature->number_ranges, call.ranges.word());
  EXPECT_EQ(signature->default_dtype, at::kFloat);
}

TEST_F(MakeSignatureTest, BindsEachArgument) {
  const std::vector<int64_t> shape = {3};
  const auto norm = make_layer_norm(x);
  ASSERT_EQ(norm->args.size(), 5);
  EXPECT_EQ(norm->args[0].kind, ArgBinding::Kind::kOperand);
  EXPECT_EQ(norm->args[1].kind, ArgBinding::Kind::kConstant);
  EXPECT_EQ(norm->args[1].constant.toIntVector(), shape);
  EXPECT_EQ(norm->args[4].kind, ArgBinding::Kind::kScalar);
  EXPECT_EQ(norm->args[4].constant.toDouble(), 1e-5);
  const auto random = make("aten::uniform_", "", {x, 0.0, 1.0, c10::IValue()}, {on_meta({2, 3})});
  EXPECT_EQ(random->args[3].kind, ArgBinding::Kind::kGenerator);
  const auto clamp = make("aten::clamp", "", {x, 1, c10::IValue()}, {on_meta({2, 3})});
  EXPECT_EQ(clamp->args[1].kind, ArgBinding::Kind::kScalar);
  EXPECT_EQ(clamp->args[2].kind, ArgBinding::Kind::kConstant) << "that it is missing does not change";
}

TEST_F(MakeSignatureTest, KnowsHowOperandsLie) {
  const at::Tensor column = at::empty({3, 2}, on_lazy()).t();
  const auto signature = make_layer_norm(column);
  ASSERT_EQ(signature->operands.size(), 3);
  EXPECT_EQ(signature->operands[0], Geometry::of(*column.unsafeGetTensorImpl()));
  EXPECT_EQ(signature->operands[1].dtype, at::ScalarType::Undefined);
  EXPECT_EQ(signature->operands[2], Geometry::contiguous(at::kFloat, {3}));
  EXPECT_TRUE(signature->on_cpu.empty());
  EXPECT_TRUE(signature->written.empty());
}

TEST_F(MakeSignatureTest, KnowsWhichOperandsAreNumbersOfTheCpuOrWritten) {
  const auto signature = make("aten::add_", "Tensor", {x, at::ones({}), 1}, {x});
  EXPECT_EQ(signature->on_cpu, std::vector<bool>({false, true}));
  EXPECT_EQ(signature->written, std::vector<bool>({true, false}));
}

TEST_F(MakeSignatureTest, ResultsBecomeLayouts) {
  const at::Tensor part = at::conj(on_meta({5, 3}, at::kComplexFloat).slice(0, 1, 3));
  const auto signature = make_add(part);
  ASSERT_EQ(signature->outputs.size(), 1);
  EXPECT_EQ(signature->outputs[0], Geometry::contiguous(at::kComplexFloat, {2, 3}));
  EXPECT_EQ(signature->output_bytes[0], 2 * 3 * 8);
  EXPECT_EQ(signature->returns[0].kind, ReturnBinding::Kind::kFresh);
}

TEST_F(MakeSignatureTest, OutputsTakeAsManyBytesAsTheyReach) {
  const auto signature = make_add(on_meta({3, 4}).t().slice(0, 0, 2));
  EXPECT_EQ(signature->outputs[0].strides, c10::DimVector({1, 4}));
  EXPECT_EQ(signature->output_bytes[0], (1 + 2 * 4 + 1) * 4);
}

TEST_F(MakeSignatureTest, ReturnsThatAreArgumentsNeedNoOutput) {
  const auto signature = make("aten::mul", "out", {x, y, x}, {on_meta({2, 3})});
  EXPECT_TRUE(signature->outputs.empty());
  EXPECT_EQ(signature->returns[0].kind, ReturnBinding::Kind::kArgument);
  EXPECT_EQ(signature->returns[0].index, 2);
}

TEST_F(MakeSignatureTest, ListsAndMissingReturnsAreBound) {
  const auto list = make(
      "aten::split_with_sizes_copy",
      "",
      {x, std::vector<int64_t>{1, 2}, 1},
      {std::vector<at::Tensor>{on_meta({2, 1}), on_meta({2, 2})}});
  EXPECT_EQ(list->returns[0].kind, ReturnBinding::Kind::kFreshList);
  EXPECT_EQ(list->returns[0].index, 2);
  EXPECT_EQ(list->outputs[1], Geometry::contiguous(at::kFloat, {2, 2}));
  const auto missing = make_add(at::Tensor());
  EXPECT_EQ(missing->returns[0].kind, ReturnBinding::Kind::kUndefined);
  EXPECT_TRUE(missing->outputs.empty());
}

TEST_F(MakeSignatureTest, OtherResultsHaveNone) {
  EXPECT_FALSE(make_add(at::empty({2, 3}))) << "of another device";
  EXPECT_FALSE(make_add(on_meta({2, 3}, at::kQInt8)));
  const c10::Stack stack = {x, y, 1};
  const Call call = read_call(op_info("aten::add", "Tensor"), stack);
  EXPECT_TRUE(make_signature(call, stack, {at::ones({2, 3})}, c10::kCPU, /*is_silent=*/true));
  EXPECT_FALSE(make_signature(call, stack, {at::ones({2, 3}).to_sparse()}, c10::kCPU, /*is_silent=*/true));
  EXPECT_FALSE(make(
      "aten::split_with_sizes_copy",
      "",
      {x, std::vector<int64_t>{3}, 1},
      {std::vector<at::Tensor>{at::Tensor()}}));
}

// ---- hash ----

TEST_F(MakeSignatureTest, HashIsOfTheIdentityAndTheOutputs) {
  const auto signature = make_add(on_meta({2, 3}), 2);
  EXPECT_EQ(signature->hash, make_add(on_meta({2, 3}), 1000)->hash) << "numbers are inputs";
  EXPECT_NE(signature->hash, make_add(on_meta({3, 2}).t())->hash);
  EXPECT_NE(signature->hash, make("aten::sub", "Tensor", {x, y, 1}, {on_meta({2, 3})})->hash);
}

TEST_F(MakeSignatureTest, HashFollowsOutputsThatChange) {
  const auto signature = make_add(on_meta({2, 3}));
  const Hash128 before = signature->hash;
  signature->outputs[0].strides = {1, 2};
  finish_signature(*signature);
  EXPECT_EQ(signature->hash, make_add(on_meta({3, 2}).t())->hash);
  signature->outputs[0].strides = {3, 1};
  finish_signature(*signature);
  EXPECT_EQ(signature->hash, before);
}

// ---- prediction ----

TEST_F(MakeSignatureTest, CallsArePredictableIfTheSignatureTellsThemApart) {
  const c10::Stack result = {on_meta({2, 3})};
  EXPECT_TRUE(make_add(result[0])->predictable);
  EXPECT_FALSE(make("aten::add", "Tensor", {x, y, 1}, result, /*is_silent=*/false)->predictable);
  EXPECT_TRUE(make("aten::uniform_", "", {x, 0.0, 1.0, c10::IValue()}, result)->predictable);
  EXPECT_FALSE(make("aten::add_", "Tensor", {x, x, 1}, result)->predictable) << "where they overlap is not in it";
  EXPECT_TRUE(make(
                  "aten::ones",
                  "",
                  {std::vector<int64_t>{2, 3}, c10::IValue(), c10::IValue(), lazy_device(0), c10::IValue()},
                  result)
                  ->predictable)
      << "predictions are of one device";
}

TEST_F(MakeSignatureTest, RemembersTheDefaultDtype) {
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const auto signature = make_add(on_meta({2, 3}));
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_EQ(signature->default_dtype, at::kDouble);
}

} // namespace
} // namespace lazyplug
