#include "backend/inference/shape_inference.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class ShapeInferenceTest : public BackendTest {
 protected:
  Inference infer(const char* name, const char* overload, const c10::Stack& stack) {
    return infer_shapes(read_call(op_info(name, overload), stack), stack);
  }
  static at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, on_lazy(dtype));
  }
  static std::string message_of(const Inference& inference) {
    return error_of([&] {
      if (inference.error) {
        std::rethrow_exception(inference.error);
      }
    });
  }
};

TEST_F(ShapeInferenceTest, SmallAndLargeCallsAreInferredAlike) {
  for (const int64_t size : {2, 200}) {
    const auto signature = infer("aten::mm", "", {lazy({size, 3}), lazy({3, size})}).signature;
    ASSERT_TRUE(signature);
    EXPECT_EQ(signature->outputs[0], Geometry::contiguous(at::kFloat, {size, size}));
    EXPECT_TRUE(signature->predictable);
  }
}

TEST_F(ShapeInferenceTest, RemembersNothingAndTouchesNoData) {
  const at::Tensor x = lazy({4});
  for (int64_t i = 1; i <= 2; ++i) {
    infer("aten::add_", "Tensor", {x, x, 1});
    EXPECT_EQ(count("ShapeInference"), i);
  }
  EXPECT_EQ(state_of(x), State::kUnallocated);
  EXPECT_EQ(context_.pending_nodes(), 0);
}

TEST_F(ShapeInferenceTest, WhatTheOpRefusesIsKeptAsAnError) {
  for (const int64_t size : {2, 200}) {
    const Inference inference = infer("aten::mm", "", {lazy({size, 100}), lazy({size, 100})});
    EXPECT_FALSE(inference.signature);
    EXPECT_TRUE(contains(message_of(inference), "mat1 and mat2 shapes cannot be multiplied"));
  }
}

TEST_F(ShapeInferenceTest, WhatWouldResizeInPlaceIsAnError) {
  for (const int64_t size : {2, 20000}) {
    const Inference inference = infer("aten::add_", "Tensor", {lazy({size}), lazy({2, size}), 1});
    EXPECT_FALSE(inference.signature);
    EXPECT_NE(message_of(inference), "none");
  }
}

TEST_F(ShapeInferenceTest, WithoutAMetaKernelThereIsNeitherSignatureNorError) {
  const Inference inference = infer("lazyplug_backend_test::no_meta", "", {lazy({3})});
  EXPECT_FALSE(inference.signature);
  EXPECT_FALSE(inference.error);
  EXPECT_EQ(inference.run_now, nullptr);
}

TEST_F(ShapeInferenceTest, KernelsOfOtherLibrariesAreNotRunOnZeros) {
  const Inference inference = infer("lazyplug_backend_test::fail", "", {lazy({3})});
  EXPECT_TRUE(inference.signature) << "its Meta kernel does not fail";
  EXPECT_EQ(inference.run_now, nullptr);
}

// ---- trials ----

TEST_F(ShapeInferenceTest, ACpuKernelThatRefusesZerosPutsASmallCallOnTrial) {
  const Inference small = infer("aten::linalg_inv_ex", "", {lazy({2, 2}), true}); // checks whether it is singular
  EXPECT_TRUE(small.signature);
  EXPECT_STREQ(small.run_now, "on trial");
  EXPECT_FALSE(small.error) << "it may not be the user's";
  const Inference large = infer("aten::linalg_inv_ex", "", {lazy({100, 100}), true});
  EXPECT_TRUE(large.signature);
  EXPECT_EQ(large.run_now, nullptr);
}

TEST_F(ShapeInferenceTest, OnesAreTriedBeforeThat) {
  const Inference inference = infer("aten::remainder", "Tensor", {lazy({3}, at::kLong), lazy({3}, at::kLong)});
  EXPECT_TRUE(inference.signature);
  EXPECT_EQ(inference.run_now, nullptr) << "division by zero says nothing about the call";
}

TEST_F(ShapeInferenceTest, SmallArgumentsOfALargeCallCostNothing) {
  const int64_t many = int64_t{1} << 40;
  const at::Tensor x = lazy({1});
  const auto signature = infer("aten::add", "Tensor", {x.expand({many}), lazy({1}), 1}).signature;
  ASSERT_TRUE(signature);
  EXPECT_EQ(signature->outputs[0].sizes, c10::DimVector({many}));
}

TEST_F(ShapeInferenceTest, ALargeResultOfASmallCallIsLeftToTheMetaKernel) {
  const Inference inference = infer("aten::mm", "", {lazy({4000, 1}), lazy({1, 4000})});
  ASSERT_TRUE(inference.signature);
  EXPECT_EQ(inference.signature->outputs[0].sizes, c10::DimVector({4000, 4000}));
  EXPECT_EQ(inference.run_now, nullptr);
}

// ---- out= ----

TEST_F(ShapeInferenceTest, TellsHowArgumentsLieAfterAnOutIsResized) {
  const at::Tensor turned = lazy({3, 2}).t();
  const Inference inference = infer("aten::mul", "out", {turned, lazy({3}), lazy({0})});
  EXPECT_FALSE(inference.signature);
  ASSERT_EQ(inference.resized.size(), 3);
  EXPECT_EQ(inference.resized[0], Geometry::of(*turned.unsafeGetTensorImpl()));
  EXPECT_EQ(inference.resized[2].sizes, c10::DimVector({2, 3}));
}

TEST_F(ShapeInferenceTest, AnOutThatFitsIsNotResized) {
  const Inference inference = infer("aten::mul", "out", {lazy({2, 3}), lazy({3}), lazy({3, 2}).t()});
  EXPECT_TRUE(inference.signature);
  EXPECT_TRUE(inference.resized.empty());
}

TEST_F(ShapeInferenceTest, WarningsAreKeptForTheCaller) {
  Warnings seen;
  const Inference inference = infer("aten::mul", "out", {lazy({2, 3}), lazy({3}), lazy({7})});
  ASSERT_EQ(inference.warnings.size(), 1);
  EXPECT_TRUE(contains(inference.warnings[0].msg(), "An output with one or more elements was resized"));
  EXPECT_TRUE(seen.messages.empty());
}

// ---- overlaps ----

TEST_F(ShapeInferenceTest, OverlapsThatTheOpRefusesRaise) {
  for (const int64_t size : {4, 20000}) {
    const at::Tensor memory = lazy({size + 1});
    const c10::Stack shifted = {memory.slice(0, 0, size), memory.slice(0, 1, size + 1), 1};
    EXPECT_TRUE(contains(error_of([&] { infer("aten::add_", "Tensor", shifted); }), "unsupported operation"));
    const c10::Stack apart = {memory.slice(0, 0, size / 2), memory.slice(0, size / 2, size), 1};
    EXPECT_TRUE(infer("aten::add_", "Tensor", apart).signature);
  }
}

} // namespace
} // namespace lazyplug
