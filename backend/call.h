#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "backend/device_context.h"
#include "backend/number_ranges.h"
#include "lowering/op_info.h"

namespace lazyplug {

// A call's arguments, read from the stack once: its key, its tensors and its
// scalars.
struct Call {
  const OpInfo* op = nullptr;
  Hash128 identity; // op, constants, and the geometries of the tensors
  // The same, and what kernels check of numbers: their signs and magnitudes; and
  // which kernels.
  Hash128 key;
  uint32_t kernel_version = 0;
  NumberRanges ranges;
  c10::SmallVector<TensorArg, 8> tensors;
  c10::SmallVector<c10::IValue, 4> scalars;
  // Which scalar is the seed that the call's generator is to supply, or -1.
  int seed_scalar = -1;
  std::optional<at::Generator> generator;
  // The device of the lazy tensors or of the device argument; -1 if neither.
  int device = -1;
  bool any_written = false;
  bool any_shared_storage = false; // a tensor that is written shares one with another
  int64_t num_elements = 0;        // of all tensors together
  // The device argument asks for a result elsewhere, or tensors are on several
  // devices: for the op's composite kernel.
  bool crosses_devices = false;
  // Why the call cannot be traced, or null.
  const char* obstacle = nullptr;
};

// What eager raises when tensors are on different devices.
[[noreturn]] void raise_two_devices(c10::Device first, c10::Device second);

// Reads the arguments on top of `stack`, or all of them. Raises what eager raises
// when tensors are on different devices, unless the op has a composite kernel.
Call read_call(const OpInfo& op, const c10::Stack& stack);
Call read_arguments(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

} // namespace lazyplug
