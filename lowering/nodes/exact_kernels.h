#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel of this project for one of PyTorch's ops, with the bits of PyTorch's and less time. It computes a call on
// CPU tensors: takes the arguments from the stack and leaves the results. What it leaves to PyTorch, as what PyTorch
// refuses, it leaves on the stack, and returns false. Unless `reads_last`, the last result may be undefined.
using ExactKernel = bool (*)(const OpInfo& op, c10::Stack& stack, bool reads_last);

bool has_exact_kernel(const OpInfo& op);
// Computes a call that is not part of a graph, if its op has such a kernel.
bool run_exact_kernel(const OpInfo& op, c10::Stack& stack);

// For a node of a graph: such a kernel, or PyTorch's for what that leaves. Null if the op has none.
std::function<void(c10::Stack&)>
exact_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
