#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel for a node that is a SmallExtreme. It calls PyTorch's for a tensor that does not lie as the type says. Null
// if the node is none.
std::function<void(c10::Stack&)>
extreme_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
