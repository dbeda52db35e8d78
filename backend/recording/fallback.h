#pragma once

#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include "backend/recording/cpu_tensors.h"
#include "common/running_op.h"
#include "device/cpu_allocator.h"
#include "lowering/calls/small_calls.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Runs an op at once with its CPU kernel, on CPU tensors that share the lazy
// storages' memory: in-place ops, out= arguments and views work without a copy.
// Counted as "aten::<op>", warned about once per op, or refused, as the flag
// `fallback` says. An op that fails on the CPU raises its own error and is not
// counted.
inline constexpr const char* kForced = "forced"; // the reason of those that the setting `force_fallback` names
void run_fallback(const OpInfo& op, c10::Stack* stack, const char* reason);

// The same for an op that could be recorded as well; counted as "RunAtOnce".
void run_at_once(const OpInfo& op, c10::Stack* stack, const char* reason);

// Within its scope this thread runs CPU kernels for an op of the device.
class CpuKernelScope {
 public:
  CpuKernelScope(const OpInfo& op, c10::DeviceIndex device) : memory_(device), running_(op.name().c_str()) {}

 private:
  const ExecutionGuard guard_;
  const KernelMemoryScope memory_;
  const RunningOp running_;
};

// run_at_once() for who has not boxed the arguments, of an op that writes none of
// them: `run` makes CPU tensors of them, calls the op within a CpuKernelScope and
// with the ThreadsOfCall, and makes lazy tensors of its results.
void run_at_once(
    const OpInfo& op,
    c10::DeviceIndex device,
    const char* reason,
    c10::function_ref<void(CpuTensors&)> run);

// The same for an op that writes some of them, and returns no others.
void run_writing_at_once(
    const OpInfo& op,
    c10::DeviceIndex device,
    const char* reason,
    c10::function_ref<void(CpuTensors&)> run);

// The same for a call that may be a small one. Undefined, and nothing done, if it is none.
at::Tensor run_small_at_once(
    const OpInfo& op,
    const SmallCalls& calls,
    c10::DeviceIndex device,
    const char* reason,
    c10::ArrayRef<c10::IValue> arguments);

} // namespace lazyplug
