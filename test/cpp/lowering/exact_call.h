#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {

// Whether a call that is not part of a graph is computed by an exact kernel. It is expected that its results, which are
// returned, if wanted, are PyTorch's then, NaN where that has NaN; and if not, that nothing has changed.
inline bool is_computed_exactly(const char* name, const c10::Stack& arguments, c10::Stack* results = nullptr) {
  const OpInfo& op = make_op(name);
  c10::Stack ours = arguments;
  if (!run_exact_kernel(op, ours)) {
    EXPECT_EQ(ours.size(), arguments.size());
    return false;
  }
  c10::Stack expected = arguments;
  op.handle().callBoxed(expected);
  EXPECT_EQ(ours.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& result = ours[i].toTensor();
    const at::Tensor& of_pytorch = expected[i].toTensor();
    EXPECT_EQ(result.scalar_type(), of_pytorch.scalar_type()) << name << ", result " << i;
    EXPECT_EQ(result.strides(), of_pytorch.strides()) << name << ", result " << i;
    EXPECT_TRUE(at::allclose(result, of_pytorch, 0, 0, /*equal_nan=*/true)) << name << ", result " << i;
    if (result.is_floating_point()) { // zeros have the same sign, too
      const auto is_negative = [](const at::Tensor& x) { return x.signbit().logical_and(x.isnan().logical_not()); };
      EXPECT_TRUE(is_negative(result).equal(is_negative(of_pytorch))) << name << ", result " << i;
    }
  }
  if (results) {
    *results = std::move(ours);
  }
  return true;
}

} // namespace lazyplug
