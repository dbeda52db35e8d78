#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel for a node of aten::sum, aten::mean or aten::linalg_vector_norm, over all dimensions or some, of a small
// tensor without gaps: the same bits as PyTorch's, without what that asks and prepares each time, which takes longer
// than to add up. It calls PyTorch's for a tensor that does not lie as the type says. Null if the node is no such
// reduction.
std::function<void(c10::Stack&)> sum_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
