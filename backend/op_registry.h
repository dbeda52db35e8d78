#pragma once

#include <vector>

#include "lowering/op_info.h"

namespace lazyplug {

// The description of an op; made at the first call, alive for ever.
const OpInfo& op_info(const c10::OperatorHandle& handle);
const OpInfo& op_info(const char* name, const char* overload);

// All ops in PyTorch's own namespace that have a schema, registered ones only.
const std::vector<c10::OperatorHandle>& aten_ops();

} // namespace lazyplug
