#pragma once

#include "lowering/op_info.h"

namespace lazyplug {

// The description of an op; made at the first call, alive for ever.
const OpInfo& op_info(const c10::OperatorHandle& handle);
const OpInfo& op_info(const char* name, const char* overload);

} // namespace lazyplug
