#include "backend/caches/signature_cache.h"

#include "test/cpp/backend/infer_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

class SignatureCacheTest : public InferTest {};

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
