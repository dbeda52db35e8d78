#pragma once

#include <ATen/core/stack.h>

#include "lowering/op_info.h"

namespace lazyplug {

// Runs an op at once with its CPU kernel, on CPU tensors that share the lazy
// storages' memory: in-place ops, out= arguments and views work without a copy.
// Counted as "aten::<op>", warned about once per op, or refused, as the flag
// `fallback` says. An op that fails on the CPU raises its own error and is not
// counted.
void run_fallback(const OpInfo& op, c10::Stack* stack, const char* reason);

// The same for an op that could be recorded as well; counted as "RunAtOnce".
void run_at_once(const OpInfo& op, c10::Stack* stack, const char* reason);

// A CPU tensor over the memory of a lazy one, which is made available first.
// If the memory is to be written, pending work that reads it runs first.
at::Tensor cpu_alias(const at::Tensor& tensor, bool for_write);

// A lazy tensor over the memory of a strided CPU tensor that nobody else holds.
at::Tensor adopt_cpu_tensor(const at::Tensor& tensor, c10::DeviceIndex device);

} // namespace lazyplug
