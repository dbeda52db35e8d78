#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "lowering/ir/op_info.h"
#include "lowering/node_attributes.h"

namespace lazyplug {

// Computes a call on a float32 CPU tensor without gaps, max_pool2d_with_indices or avg_pool2d of images in either
// memory format or upsample_nearest2d of contiguous ones: the bits of PyTorch's kernels, which take up to twenty times
// as long. Takes the arguments from the stack and leaves the results. Otherwise, as for what PyTorch refuses, does
// nothing and returns false.
bool run_image_kernel(const OpInfo& op, c10::Stack& stack);

// The same for a node of a graph, or else PyTorch's kernel; the places of maxima are undefined if nobody reads them.
// Null if the node is no such call.
std::function<void(c10::Stack&)>
image_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
