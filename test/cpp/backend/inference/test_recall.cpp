#include "backend/inference/recall.h"

#include "test/cpp/backend/infer_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class RecallTest : public InferTest {};

TEST_F(RecallTest, AsksTheMetaKernelOncePerKey) {
  const c10::Stack stack = {lazy({7, 5}), lazy({5, 2})};
  const SignaturePtr first = infer_call("aten::mm", "", stack).signature;
  const SignaturePtr second = infer_call("aten::mm", "", {lazy({7, 5}), lazy({5, 2})}).signature;
  ASSERT_TRUE(first);
  EXPECT_EQ(first, second);
  EXPECT_EQ(count("ShapeInference"), 1);
  ASSERT_EQ(first->outputs.size(), 1);
  EXPECT_EQ(first->outputs[0], Geometry::contiguous(at::kFloat, {7, 2}));
  EXPECT_EQ(first->output_bytes[0], 7 * 2 * 4);
}

TEST_F(RecallTest, TouchesNoData) {
  const at::Tensor x = lazy({3, 11});
  infer_call("aten::add_", "Tensor", {x, x, 1});
  EXPECT_EQ(state_of(x), State::kUnallocated);
  EXPECT_EQ(context_.pending_nodes(), 0);
}

TEST_F(RecallTest, PredictsStridesAndPromotion) {
  const auto signature =
      infer_call("aten::add", "Tensor", {lazy({4, 3}).t(), lazy({4, 3}, at::kDouble).t(), 1}).signature;
  EXPECT_EQ(signature->outputs[0].strides, c10::DimVector({1, 3}));
  EXPECT_EQ(signature->outputs[0].dtype, at::kDouble);
  at::Tensor number = at::ones({}, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_EQ(
      infer_call("aten::add", "Tensor", {lazy({2}, at::kHalf), number, 1}).signature->outputs[0].dtype,
      at::kHalf);
}

TEST_F(RecallTest, BindsArgumentsAndReturns) {
  const auto signature = infer_call("aten::add_", "Tensor", {lazy({2}), lazy({2}), 1}).signature;
  ASSERT_EQ(signature->args.size(), 3);
  EXPECT_EQ(signature->args[0].kind, ArgBinding::Kind::kOperand);
  EXPECT_EQ(signature->args[2].kind, ArgBinding::Kind::kScalar);
  ASSERT_EQ(signature->returns.size(), 1);
  EXPECT_EQ(signature->returns[0].kind, ReturnBinding::Kind::kArgument);
  EXPECT_EQ(signature->returns[0].index, 0);
  EXPECT_TRUE(signature->outputs.empty());
  EXPECT_EQ(signature->written, std::vector<bool>({true, false}));
}

TEST_F(RecallTest, BindsLists) {
  const auto signature =
      infer_call("aten::cat", "", {std::vector<at::Tensor>{lazy({2, 3}), lazy({1, 3})}, 0}).signature;
  EXPECT_EQ(signature->args[0].kind, ArgBinding::Kind::kOperandList);
  EXPECT_EQ(signature->args[0].count, 2);
  EXPECT_EQ(signature->args[1].constant.toInt(), 0);
  EXPECT_EQ(signature->outputs[0], Geometry::contiguous(at::kFloat, {3, 3}));
}

TEST_F(RecallTest, DeviceArgumentsBecomeTheCpu) {
  const auto signature = infer_call(
                             "aten::ones",
                             "",
                             {std::vector<int64_t>{2}, c10::IValue(), c10::IValue(), lazy_device(0), c10::IValue()})
                             .signature;
  ASSERT_TRUE(signature);
  EXPECT_EQ(signature->args[3].constant.toDevice(), c10::Device(c10::kCPU));
}

TEST_F(RecallTest, MissingMetaKernelIsRememberedForEver) {
  const c10::Stack stack = {lazy({13})};
  EXPECT_FALSE(infer_call("lazyplug_backend_test::no_meta", "", stack).signature);
  EXPECT_FALSE(infer_call("lazyplug_backend_test::no_meta", "", stack).signature);
  EXPECT_EQ(count("ShapeInference"), 1);
}

TEST_F(RecallTest, RefusedCallsAreNotRemembered) {
  const c10::Stack stack = {lazy({2, 3}), lazy({2, 3})};
  EXPECT_FALSE(infer_call("aten::mm", "", stack).signature);
  EXPECT_FALSE(infer_call("aten::mm", "", stack).signature);
  EXPECT_EQ(count("ShapeInference"), 2);
}

TEST_F(RecallTest, ResultThatWouldBeResizedIsReported) {
  const Inference inference = infer_call("aten::mul", "out", {lazy({2, 3}), lazy({3}), lazy({0})});
  EXPECT_FALSE(inference.signature);
  ASSERT_EQ(inference.resized.size(), 3);
  EXPECT_EQ(inference.resized[2], Geometry::contiguous(at::kFloat, {2, 3}));
}

TEST_F(RecallTest, OverlappingWritesRaiseWhatTheCpuRaises) {
  const at::Tensor expanded = lazy({1}).expand({4});
  EXPECT_TRUE(contains(
      error_of([&] { infer_call("aten::add_", "Tensor", {expanded, lazy({4}), 1}); }),
      "more than one element of the written-to tensor refers to a single memory location"));
  const at::Tensor memory = lazy({5});
  EXPECT_TRUE(contains(
      error_of([&] { infer_call("aten::add_", "Tensor", {memory.slice(0, 0, 4), memory.slice(0, 1, 5), 1}); }),
      "unsupported operation"));
  EXPECT_TRUE(infer_call("aten::add_", "Tensor", {memory, memory, 1}).signature) << "a full overlap is fine";
}

} // namespace
} // namespace lazyplug
