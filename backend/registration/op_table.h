#pragma once

#include <vector>

#include "backend/ops/op_table.h"

namespace lazyplug {

// All that is known of single ops, one row for each, or for all overloads of one.
std::vector<OpRow> op_rows();

// Its parts, which are compiled one beside the other.
// Arithmetic, comparisons, activations and their gradients.
std::vector<OpRow> elementwise_rows();
// Losses, reductions, normalizations, products, images, attention, recurrent networks.
std::vector<OpRow> network_rows();
// Memory, copies, views, factories, random numbers, indices, optimisers, and what no trace holds.
std::vector<OpRow> other_rows();

} // namespace lazyplug
