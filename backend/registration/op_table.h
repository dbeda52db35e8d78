#pragma once

#include <vector>

#include "backend/ops/op_table.h"

namespace lazyplug {

// All that is known of single ops, one row for each, or for all overloads of one.
std::vector<OpRow> op_rows();

} // namespace lazyplug
