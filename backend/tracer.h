#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "backend/device_context.h"
#include "lowering/op_info.h"

namespace lazyplug {

// Records a call whose arguments are on the stack, and leaves its results
// there: the one kernel behind every op of the device. What cannot be recorded
// runs at once on the CPU (backend/fallback.h).
void trace(const OpInfo& op, c10::Stack* stack);

// trace() has two halves. The first records the call if it is what the stream
// predicts, on the device of `example`, one of its arguments; else it does
// nothing, and the second does all the work.
std::optional<DeviceContext::Predicted>
predict(const OpInfo& op, const at::Tensor& example, c10::function_ref<bool(PredictedCall&)> read);
void trace_unpredicted(const OpInfo& op, c10::Stack* stack);

// The tracer as a boxed kernel for one op.
class TracerKernel final : public c10::OperatorKernel {
 public:
  explicit TracerKernel(const OpInfo& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& /*handle*/, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    trace(op_, stack);
  }

 private:
  const OpInfo& op_;
};

// The tracer for ops that were unknown when the device was loaded, such as
// custom ops.
void trace_unregistered(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, c10::Stack* stack);

} // namespace lazyplug
