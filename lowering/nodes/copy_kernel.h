#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A kernel for a node of aten::copy_ of a few elements within a dtype, however both tensors lie, without what PyTorch's
// asks and prepares each time, which takes longer than to copy. It calls PyTorch's for tensors that do not lie as the
// types say, or are conjugated or negated. Null if the node is no such copy.
std::function<void(c10::Stack&)>
copy_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
