#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel for a node of aten::mm or aten::addmm with a small result, or of aten::mv: what PyTorch's asks and prepares
// each time, which takes longer than the product of small matrices itself, is known from the types. It has the bits of
// PyTorch's, and calls that instead wherever it would not do the same. Null if the node is no such product.
std::function<void(c10::Stack&)>
product_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
