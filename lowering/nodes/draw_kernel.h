#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel for a node that draws one place in each row of a small tensor without gaps: multinomial with one sample. The
// same places as PyTorch's kernel for the same generator, without the tensors that it makes to check and to divide. It
// calls PyTorch's for a tensor that does not lie as the type says, and for probabilities that are to be refused. Null
// if the node is no such draw.
std::function<void(c10::Stack&)>
draw_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
