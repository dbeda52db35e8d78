#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "backend/ops/number_ranges.h"
#include "backend/ops/tensor_arg.h"
#include "common/hash.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// A call's arguments, read from the stack once (backend/inference/read_call.h): its key, its tensors and its scalars.
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
  // Its result is to be in pinned memory, which is the CPU's.
  bool asks_for_pinned = false;
  // Why the call cannot be traced, or null.
  const char* obstacle = nullptr;
};

} // namespace lazyplug
