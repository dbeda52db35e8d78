#include "backend/meta_kernels.h"

#include "backend/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

TEST(MetaKernels, TellShapesAndStrides) {
  const OpInfo& op = op_info("aten::mm", "");
  const auto* kernel = cpp_meta_kernel(op);
  ASSERT_NE(kernel, nullptr);
  const auto meta = at::TensorOptions(at::kMeta).dtype(at::kDouble);
  c10::Stack stack{at::empty({2, 3}, meta), at::empty({3, 5}, meta)};
  kernel->callBoxed(op.handle(), c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  ASSERT_EQ(stack.size(), 1);
  EXPECT_EQ(stack[0].toTensor().sizes(), c10::IntArrayRef({2, 5}));
  EXPECT_EQ(stack[0].toTensor().dtype(), at::kDouble);
  EXPECT_TRUE(stack[0].toTensor().is_meta());
}

TEST(MetaKernels, RefuseWhatTheOpRefuses) {
  const OpInfo& op = op_info("aten::add_", "Tensor");
  const auto* kernel = cpp_meta_kernel(op);
  ASSERT_NE(kernel, nullptr);
  const auto meta = at::TensorOptions(at::kMeta);
  c10::Stack stack{at::empty({2}, meta), at::empty({3}, meta), at::Scalar(1)};
  EXPECT_THROW(kernel->callBoxed(op.handle(), c10::DispatchKeySet(c10::DispatchKey::Meta), &stack), c10::Error);
}

TEST(MetaKernels, RareOpsHaveNone) {
  EXPECT_EQ(cpp_meta_kernel(op_info("aten::nonzero", "")), nullptr);
}

} // namespace
} // namespace lazyplug
