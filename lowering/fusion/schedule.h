#pragma once

#include <memory>
#include <vector>

#include "lowering/fusion/pointwise_group.h"

namespace lazyplug {

// What a lowered graph does next: a node alone, or a group of several.
struct Step {
  GraphNode* node = nullptr;
  std::unique_ptr<PointwiseGroup> group;
};

// The graph's nodes, but for its leaves, in an order in which each comes after those that it reads from, with
// neighbouring pointwise calls grouped if `may_group`. A group waits for further calls until somebody needs its
// results, or writes what it reads.
std::vector<Step> make_schedule(Graph& graph, bool may_group);

} // namespace lazyplug
