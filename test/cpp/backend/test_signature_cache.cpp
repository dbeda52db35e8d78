#include "backend/signature_cache.h"

#include "backend/op_registry.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class SignatureCacheTest : public BackendTest {
 protected:
  SignatureCacheTest() {
    clear_signatures();
  }

  Inference infer_call(const char* name, const char* overload, const c10::Stack& stack) {
    return infer(read_call(op_info(name, overload), stack), stack);
  }

  at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, on_lazy(dtype));
  }
};

TEST_F(SignatureCacheTest, AsksTheMetaKernelOncePerKey) {
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

TEST_F(SignatureCacheTest, TouchesNoData) {
  const at::Tensor x = lazy({3, 11});
  infer_call("aten::add_", "Tensor", {x, x, 1});
  EXPECT_EQ(state_of(x), State::kUnallocated);
  EXPECT_EQ(context_.pending_nodes(), 0);
}

TEST_F(SignatureCacheTest, PredictsStridesAndPromotion) {
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

TEST_F(SignatureCacheTest, BindsArgumentsAndReturns) {
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

TEST_F(SignatureCacheTest, BindsLists) {
  const auto signature =
      infer_call("aten::cat", "", {std::vector<at::Tensor>{lazy({2, 3}), lazy({1, 3})}, 0}).signature;
  EXPECT_EQ(signature->args[0].kind, ArgBinding::Kind::kOperandList);
  EXPECT_EQ(signature->args[0].count, 2);
  EXPECT_EQ(signature->args[1].constant.toInt(), 0);
  EXPECT_EQ(signature->outputs[0], Geometry::contiguous(at::kFloat, {3, 3}));
}

TEST_F(SignatureCacheTest, DeviceArgumentsBecomeTheCpu) {
  const auto signature = infer_call(
                             "aten::ones",
                             "",
                             {std::vector<int64_t>{2}, c10::IValue(), c10::IValue(), lazy_device(0), c10::IValue()})
                             .signature;
  ASSERT_TRUE(signature);
  EXPECT_EQ(signature->args[3].constant.toDevice(), c10::Device(c10::kCPU));
}

TEST_F(SignatureCacheTest, MissingMetaKernelIsRememberedForEver) {
  const c10::Stack stack = {lazy({13})};
  EXPECT_FALSE(infer_call("lazyplug_backend_test::no_meta", "", stack).signature);
  EXPECT_FALSE(infer_call("lazyplug_backend_test::no_meta", "", stack).signature);
  EXPECT_EQ(count("ShapeInference"), 1);
}

TEST_F(SignatureCacheTest, RefusedCallsAreNotRemembered) {
  const c10::Stack stack = {lazy({2, 3}), lazy({2, 3})};
  EXPECT_FALSE(infer_call("aten::mm", "", stack).signature);
  EXPECT_FALSE(infer_call("aten::mm", "", stack).signature);
  EXPECT_EQ(count("ShapeInference"), 2);
}

TEST_F(SignatureCacheTest, ResultThatWouldBeResizedIsReported) {
  const Inference inference = infer_call("aten::mul", "out", {lazy({2, 3}), lazy({3}), lazy({0})});
  EXPECT_FALSE(inference.signature);
  ASSERT_EQ(inference.resized.size(), 3);
  EXPECT_EQ(inference.resized[2], Geometry::contiguous(at::kFloat, {2, 3}));
}

TEST_F(SignatureCacheTest, OverlappingWritesRaiseWhatTheCpuRaises) {
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

// ---- learning ----

TEST_F(SignatureCacheTest, LearnedStridesArePredictedNextTime) {
  const c10::Stack stack = {lazy({3, 9}), lazy({9, 4})};
  const SignaturePtr before = infer_call("aten::mm", "", stack).signature;
  learn_strides(*before, 0, {1, 3});
  const SignaturePtr after = infer_call("aten::mm", "", stack).signature;
  EXPECT_EQ(after->outputs[0].strides, c10::DimVector({1, 3}));
  EXPECT_EQ(after->key, before->key);
  EXPECT_NE(after->hash, before->hash) << "programs with other strides are other programs";
  EXPECT_EQ(before->outputs[0].strides, c10::DimVector({4, 1})) << "signatures are immutable";
  EXPECT_EQ(count("ShapeInference"), 1);
  EXPECT_EQ(count("LayoutLearned"), 1);
}

TEST_F(SignatureCacheTest, StorageSizeFollowsTheLearnedStrides) {
  const c10::Stack stack = {lazy({3, 8}), lazy({8, 2})};
  learn_strides(*infer_call("aten::mm", "", stack).signature, 0, {4, 1});
  EXPECT_EQ(infer_call("aten::mm", "", stack).signature->output_bytes[0], (2 * 4 + 2) * 4);
}

TEST_F(SignatureCacheTest, LearningOneOutputKeepsWhatWasLearnedOfAnother) {
  const c10::Stack stack = {lazy({6, 5}), c10::IValue(false), 0, false};
  const SignaturePtr signature = infer_call("aten::sort", "stable", stack).signature;
  ASSERT_TRUE(signature);
  learn_strides(*signature, 0, {1, 6});
  learn_strides(*signature, 1, {1, 6}); // both of one run
  const SignaturePtr after = infer_call("aten::sort", "stable", stack).signature;
  EXPECT_EQ(after->outputs[0].strides, c10::DimVector({1, 6}));
  EXPECT_EQ(after->outputs[1].strides, c10::DimVector({1, 6}));
}

TEST_F(SignatureCacheTest, KernelThatNeverSaysTheSameIsNoLongerBelieved) {
  const c10::Stack stack = {lazy({3, 7}), lazy({7, 2})};
  for (int64_t i = 0; i < 20; ++i) {
    learn_strides(*infer_call("aten::mm", "", stack).signature, 0, {1, 3 + i});
  }
  EXPECT_EQ(count("LayoutLearned"), 8);
}

TEST_F(SignatureCacheTest, WhatIsKnownAlreadyIsNotLearned) {
  const c10::Stack stack = {lazy({3, 6}), lazy({6, 2})};
  const SignaturePtr signature = infer_call("aten::mm", "", stack).signature;
  learn_strides(*signature, 0, {1, 3});
  learn_strides(*signature, 0, {1, 3}); // by a job that was recorded before the first lesson
  EXPECT_EQ(count("LayoutLearned"), 1);
}

TEST_F(SignatureCacheTest, RealKernelTeachesItsStrides) {
  const at::Tensor x = to_lazy(iota({2, 17}));
  const at::Tensor first = test_ops::transposed(x);
  EXPECT_EQ(first.strides(), c10::IntArrayRef({17, 1})) << "as its Meta kernel says";
  expect_equal(first.select(1, 3), iota({2, 17}).select(1, 3));
  expect_equal(first, iota({2, 17}));
  const at::Tensor second = test_ops::transposed(x);
  EXPECT_EQ(second.strides(), c10::IntArrayRef({1, 2})) << "as its CPU kernel does";
  expect_equal(second, iota({2, 17}));
  EXPECT_EQ(count("LayoutLearned"), 1);
}

} // namespace
} // namespace lazyplug
