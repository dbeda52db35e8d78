#pragma once

#include <ATen/core/operator_name.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// What the schema of an op does not say. Empty for nearly all ops.
const OpTraits& traits_of(const c10::OperatorName& name);

// True for ops of other libraries. Of PyTorch's own, all that do have a row.
bool numbers_may_decide_shapes(const c10::OperatorName& name);

// True for ops that the tracer leaves to the kernels that they have: written
// natively for this device, or composed of other ops.
bool is_left_alone(const c10::OperatorName& name);

} // namespace lazyplug
