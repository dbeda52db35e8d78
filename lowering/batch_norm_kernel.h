#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/node_attributes.h"

namespace lazyplug {

// Computes a call of aten::native_batch_norm in training, of float32 CPU tensors without gaps whose planes have several
// elements, by kernels/batch_norm.h: the bits of PyTorch's kernel, which takes some five times as long. Whether it has
// them is asked of PyTorch once, with random numbers. Takes the arguments from the stack and leaves the results.
// Otherwise does nothing and returns false.
bool run_batch_norm(const OpInfo& op, c10::Stack& stack);

// The same for a node of a graph, or else PyTorch's kernel. Null if the node is no such call.
std::function<void(c10::Stack&)>
batch_norm_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
