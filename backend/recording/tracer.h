#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "backend/execution/device_context.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Records a call whose arguments are on the stack, and leaves its results
// there: the one kernel behind every op of the device. What cannot be recorded
// runs at once on the CPU (backend/recording/fallback.h).
void trace(const OpInfo& op, c10::Stack* stack);

// trace() has two halves. The first records the call if it is what the stream
// predicts, on the device of `example`, one of its arguments; else it does
// nothing, and the second does all the work.
std::optional<DeviceContext::Predicted>
predict(const OpInfo& op, const at::Tensor& example, c10::function_ref<bool(PredictedCall&)> read);
// The same for a call without tensors.
std::optional<DeviceContext::Predicted>
predict(const OpInfo& op, c10::DeviceIndex device, c10::function_ref<bool(PredictedCall&)> read);
void trace_unpredicted(const OpInfo& op, c10::Stack* stack);

// A short cut between the two, for all arguments of a call that need not be
// boxed: records the call if it has been recorded before, and finds out whether
// it is to run at once; else does nothing.
struct Known {
  DeviceContext::Predicted recorded;
  c10::DeviceIndex device;
  const char* run_now; // if not null, nothing has been recorded: run_at_once() with this reason
};
std::optional<Known> record_known(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

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
