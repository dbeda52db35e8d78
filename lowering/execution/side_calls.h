#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

namespace lazyplug {

// A step's kernels depend on each other less than their order says: the gradient of a layer's weight is not needed
// before the optimiser, but stands between those of two layers' inputs. Such a *side call* may run beside those that
// follow it, on a thread that has nothing else to do (common/side_tasks.h). Results do not depend on whether it does.
//
// These are products and convolutions that write nothing, and that, like what follows them until somebody needs their
// results, are estimated to take long enough.

constexpr size_t kNoSideCall = SIZE_MAX;

// For each of these nodes, in the order in which they run: the place of the first that must wait for it, the number of
// nodes if none does; kNoSideCall if it is no side call. Nodes wait that read its results, and those that might
// otherwise take the memory of what it reads, or have to copy it.
std::vector<size_t> find_side_calls(c10::ArrayRef<const torch::jit::Node*> nodes, double least_seconds);

// An estimate of what a node takes, from the types of its inputs and outputs.
double estimated_seconds(const torch::jit::Node& node);

} // namespace lazyplug
