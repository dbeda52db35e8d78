#include "backend/inference/meta_kernels.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/inference/meta_tensors.h"

namespace lazyplug {
namespace {

// What is returned, or nothing.
c10::Stack told(const char* name, const char* overload, c10::Stack arguments) {
  const size_t before = arguments.size();
  const bool is_told = call_cpp_meta_kernel(op_info(name, overload), &arguments) == Told::kYes;
  EXPECT_TRUE(is_told || arguments.size() == before) << "the stack is as it was";
  return is_told ? arguments : c10::Stack();
}

TEST(MetaKernels, StructuredOpsTellShapesAndStrides) {
  const auto results = told("aten::mm", "", {meta({2, 3}, at::kDouble), meta({3, 5}, at::kDouble)});
  ASSERT_EQ(results.size(), 1);
  EXPECT_EQ(results[0].toTensor().sizes(), c10::IntArrayRef({2, 5}));
  EXPECT_EQ(results[0].toTensor().dtype(), at::kDouble);
  EXPECT_TRUE(results[0].toTensor().is_meta());
}

TEST(MetaKernels, StructuredOpsRefuseWhatTheyDo) {
  EXPECT_THROW(told("aten::add_", "Tensor", {meta({2}), meta({3}), at::Scalar(1)}), c10::Error);
}

TEST(MetaKernels, OthersMayRefuseWhatTheCpuDoesNot) {
  c10::Stack arguments{
      meta({1, 3, 9}),
      meta({4, 3, 3}),
      c10::IValue(),
      std::vector<int64_t>{1},
      std::vector<int64_t>{0},
      std::vector<int64_t>{1},
      false,
      std::vector<int64_t>{0},
      int64_t{1}};
  EXPECT_EQ(call_cpp_meta_kernel(op_info("aten::convolution", ""), &arguments), Told::kYes);
  c10::Stack lists{c10::List<at::Tensor>({meta({2})}), c10::List<at::Tensor>({meta({3})}), at::Scalar(1)};
  EXPECT_EQ(call_cpp_meta_kernel(op_info("aten::_foreach_add_", "List"), &lists), Told::kRefused);
  EXPECT_EQ(lists.size(), 3) << "the stack is as it was";
}

TEST(MetaKernels, WhatIsWrittenIsReturned) {
  const at::Tensor x = meta({2, 3});
  const auto results = told("aten::add_", "Tensor", {x, meta({3}), at::Scalar(1)});
  ASSERT_EQ(results.size(), 1);
  EXPECT_TRUE(results[0].toTensor().is_same(x));
}

// The composite kernel calls an op that writes the statistics, if it is to, and makes results of its own.
TEST(MetaKernels, DoNotKnowWhatIsMadeBesideAWrite) {
  const at::Tensor channels = meta({3});
  EXPECT_TRUE(told(
                  "aten::_native_batch_norm_legit_no_training",
                  "",
                  {meta({2, 3, 4, 4}), channels, channels, channels, channels, 0.1, 1e-5})
                  .empty());
}

TEST(MetaKernels, NonStridedOpsAreTakenApart) {
  const auto results = told("aten::stack", "", {c10::List<at::Tensor>({meta({2, 3}), meta({2, 3})}), int64_t{1}});
  ASSERT_EQ(results.size(), 1);
  EXPECT_EQ(results[0].toTensor().sizes(), c10::IntArrayRef({2, 2, 3}));
}

TEST(MetaKernels, NumbersOfWhatFillsAreChecked) {
  const at::Tensor x = meta({2, 3});
  EXPECT_EQ(told("aten::normal_", "", {x, 0.0, 1.0, c10::IValue()}).size(), 1);
  EXPECT_ANY_THROW(told("aten::normal_", "", {x, 0.0, -1.0, c10::IValue()})) << "as the CPU would";
}

TEST(MetaKernels, DoNotKnowWhatDependsOnData) {
  EXPECT_TRUE(told("aten::nonzero", "", {meta({3})}).empty());
  EXPECT_TRUE(told("aten::masked_select", "", {meta({3}), meta({3}, at::kBool)}).empty());
}

} // namespace
} // namespace lazyplug
