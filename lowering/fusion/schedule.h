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

enum class Grouping : uint8_t {
  kNone,
  kSeveral,   // calls that stand alone are no groups
  kFunctions, // the same, but for functions, which may stand alone, see find_function(), and small calls
  kAll,       // also calls that stand alone
};

// The graph's nodes, but for its leaves, in an order in which each comes after those that it reads from, with
// neighbouring pointwise calls grouped. A group waits for further calls until somebody needs its results, writes
// what it reads, or takes memory while it holds much.
std::vector<Step> make_schedule(Graph& graph, Grouping grouping);

} // namespace lazyplug
