#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/node_attributes.h"

namespace lazyplug {

// A kernel for a node that searches a small tensor without gaps: argmax and argmin, max and min over a dimension, and
// for booleans, all and any. The same as PyTorch's, without what that asks and prepares each time. It calls PyTorch's
// for a tensor that does not lie as the type says. Null if the node is no such search.
std::function<void(c10::Stack&)>
extreme_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
