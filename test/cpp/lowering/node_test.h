// What the tests of kernels for single nodes share.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "lowering/nodes/node_attributes.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {

// A node of one tensor and constants, with the types that the op's own results have.
class NodeTest : public testing::Test {
 protected:
  using FindKernel = std::function<void(c10::Stack&)> (*)(const torch::jit::Node&, const OpInfo&, TypeGeometries&);

  explicit NodeTest(FindKernel find_kernel) : find_kernel_(find_kernel) {}

  // Of a tensor like this. Notes the call, and what PyTorch's kernel returns for it.
  std::function<void(c10::Stack&)>
  kernel_of(const char* op, const char* overload, const at::Tensor& tensor, const c10::Stack& constants) {
    const OpInfo& info = make_op(op, overload);
    stack_ = {tensor};
    stack_.insert(stack_.end(), constants.begin(), constants.end());
    expected_ = stack_;
    info.handle().callBoxed(expected_);
    auto* node = graph_.create(c10::Symbol::fromQualString(op), expected_.size());
    node->addInput(graph_.addInput())->setType(type_of(geometry_of(tensor)));
    for (const c10::IValue& constant : constants) {
      node->addInput(graph_.insertConstant(constant));
    }
    for (size_t i = 0; i < expected_.size(); ++i) {
      node->output(i)->setType(type_of(geometry_of(expected_[i].toTensor())));
    }
    graph_.insertNode(node);
    return find_kernel_(*node, info, geometries_);
  }

  // The same values, and NaN where there is one.
  void expect_same(const char* op, const char* overload, const at::Tensor& tensor, const c10::Stack& constants) {
    const auto kernel = kernel_of(op, overload, tensor, constants);
    ASSERT_TRUE(kernel) << op << tensor.sizes();
    kernel(stack_);
    ASSERT_EQ(stack_.size(), expected_.size());
    for (size_t i = 0; i < stack_.size(); ++i) {
      const at::Tensor& result = stack_[i].toTensor();
      const at::Tensor& expected = expected_[i].toTensor();
      EXPECT_TRUE(at::allclose(result, expected, 0, 0, /*equal_nan=*/true)) << op << tensor.sizes();
      if (expected.is_floating_point()) {
        EXPECT_TRUE(at::equal(at::nan_to_num(result).signbit(), at::nan_to_num(expected).signbit())) << op;
      }
      EXPECT_EQ(result.dtype(), expected.dtype());
      EXPECT_EQ(result.sizes(), expected.sizes());
      EXPECT_EQ(result.strides(), expected.strides());
    }
  }

  c10::Stack stack_; // the call's arguments

 private:
  const FindKernel find_kernel_;
  torch::jit::Graph graph_;
  TypeGeometries geometries_;
  c10::Stack expected_;
};

} // namespace lazyplug
