#pragma once

#include <string_view>
#include <vector>

#include "lowering/op_info.h"

namespace lazyplug {

// The description of an op; made at the first call, alive for ever.
const OpInfo& op_info(const c10::OperatorHandle& handle);
const OpInfo& op_info(const char* name, const char* overload);

// All registered ops of a namespace, such as "c10d::", that have a schema.
std::vector<c10::OperatorHandle> ops_of(std::string_view name_space);
// Those of PyTorch's own, which are asked for several times.
const std::vector<c10::OperatorHandle>& aten_ops();

} // namespace lazyplug
