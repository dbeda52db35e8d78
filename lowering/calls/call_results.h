// How an exact kernel (lowering/nodes/exact_kernels.h) leaves its results on the stack.
#pragma once

#include <ATen/core/stack.h>

#include <utility>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// In the place of the arguments.
inline void return_result(const OpInfo& op, c10::Stack& stack, at::Tensor result) {
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(result));
}

// Of an op that writes its first argument and returns it.
inline void return_first_argument(const OpInfo& op, c10::Stack& stack) {
  torch::jit::drop(stack, op.num_args() - 1);
}

} // namespace lazyplug
