// Runs small calls, and compares them with what graphs compute.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/config.h"
#include "lowering/calls/function_kernel.h"
#include "lowering/calls/make_small_calls.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {

using Arguments = std::vector<c10::IValue>;

// "aten::add.Tensor"
inline const OpInfo& op_of(const std::string& name) {
  const size_t dot = std::min(name.find('.'), name.size());
  return make_op(name.substr(0, dot).c_str(), dot < name.size() ? name.substr(dot + 1).c_str() : "");
}

inline void* memory_of(const c10::TensorImpl& tensor, bool /*written*/) {
  return const_cast<void*>(tensor.data());
}

inline at::Tensor number(double value) {
  at::Tensor result = at::scalar_tensor(value, at::kDouble);
  result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

class SmallCallsTest : public testing::Test {
 protected:
  static at::Tensor run(const char* op, const Arguments& arguments) {
    const auto calls = make_small_calls(op_of(op));
    return calls ? calls->run(arguments, memory_of) : at::Tensor();
  }

  // Runs it, and compares with what a graph of the one call computes: a function of ours, or PyTorch's kernel.
  static void expect_same(const char* op, const Arguments& arguments) {
    const at::Tensor result = run(op, arguments);
    ASSERT_TRUE(result.defined()) << op;
    c10::Stack expected(arguments.begin(), arguments.end());
    if (!run_function(op_of(op), expected)) {
      op_of(op).handle().callBoxed(expected);
    }
    ASSERT_EQ(result.dtype(), expected[0].toTensor().dtype()) << op;
    EXPECT_EQ(result.strides(), expected[0].toTensor().strides()) << op;
    const auto bytes = [](const at::Tensor& tensor) { return tensor.contiguous().view({-1}).view(at::kByte); };
    EXPECT_TRUE(at::equal(bytes(result), bytes(expected[0].toTensor()))) << op;
  }

  static void expect_none(const char* op, const Arguments& arguments) {
    EXPECT_FALSE(run(op, arguments).defined()) << op;
  }

  const at::Tensor x_ = at::randn({3, 37});
  const at::Tensor y_ = at::randn({3, 37});
};

} // namespace lazyplug
