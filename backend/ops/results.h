#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <iterator>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// What a call returns.
using Results = c10::SmallVector<c10::IValue, 4>;

// Replaces the arguments on the stack by the results, which may be in a c10::Stack, too.
template <typename Values>
void replace_arguments(const OpInfo& op, Values results, c10::Stack* stack) {
  torch::jit::drop(*stack, op.num_args());
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

// The results of an op that returns only arguments.
inline Results returned_arguments(const OpInfo& op, const c10::Stack& stack) {
  Results results;
  for (const int argument : op.return_aliases()) {
    results.push_back(torch::jit::peek(stack, argument, op.num_args()));
  }
  return results;
}

} // namespace lazyplug
