#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/node_attributes.h"

namespace lazyplug {

// Computes a small call of aten::convolution or aten::convolution_backward on float32 CPU tensors without gaps by
// kernels/convolution.h and kernels/filter_gradient.h, which have the bits of PyTorch's kernels and take less time, or
// some of its results. That they have them is found out for each form of calls, and number of intra-op threads, when it
// comes for the second time (the first, with the flag `fusion` at 2): both compute the same random numbers, once. Takes
// the arguments from the stack and leaves the results. Otherwise does nothing and returns false.
bool run_convolution(const OpInfo& op, c10::Stack& stack);

// The same for a node of a graph, or else PyTorch's kernel. Null if the node is no such call.
std::function<void(c10::Stack&)>
convolution_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
