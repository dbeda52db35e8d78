#pragma once

#include <ATen/core/Tensor.h>

#include "lowering/ir/trace_slice.h"

namespace lazyplug {

class DeviceContext;

// The part of the pending trace that computes these tensors of the device, as a copy: its roots are the tensors.
// Without data, leaves may be undefined; otherwise waits for those that are being computed, and raises the error of one
// that failed. Runs nothing.
TraceSlice pending_slice(DeviceContext& context, c10::ArrayRef<at::Tensor> tensors, bool with_data);

} // namespace lazyplug
