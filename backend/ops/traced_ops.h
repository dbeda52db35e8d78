#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace lazyplug {

// Whether the tracer takes this ATen op over. Ops that it does not take over
// either have a native kernel, or fall apart into other ops, or reach the
// tracer as the device's fallback.
bool is_traced(const c10::OperatorHandle& handle);

} // namespace lazyplug
