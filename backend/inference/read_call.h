#pragma once

#include <ATen/core/stack.h>

#include "backend/caches/compile_storms.h"
#include "backend/ops/call.h"

namespace lazyplug {

// What eager raises when tensors are on different devices.
[[noreturn]] void raise_two_devices(c10::Device first, c10::Device second);

// Whether the sizes of the result are known only when the arguments' elements are: those of a mask, for one.
bool shape_depends_on_data(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

// Reads the arguments on top of `stack`, or all of them. Raises what eager raises
// when tensors are on different devices, unless the op has a composite kernel.
Call read_call(const OpInfo& op, const c10::Stack& stack);
Call read_arguments(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

// What there is to know of a call that runs at once, if its arguments are plain, such that its key tells nothing that a
// CPU kernel would not find out itself: strided lazy tensors of one device, numbers, and constants, of an op that is
// recorded as it is. Nothing for others.
struct PlainCall {
  c10::DeviceIndex device;
  Hash128 kind;         // kind_of() the call
  int64_t num_elements; // of all tensors together
  StorageIds storages;
};
std::optional<PlainCall> read_plain_call(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

} // namespace lazyplug
