#pragma once

#include <ATen/core/stack.h>

#include <functional>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// What an op returns on the CPU, made of Meta tensors, from its arguments. Raises
// something if it cannot tell, or if the arguments are wrong.
using ShapeRule = std::function<c10::Stack(c10::ArrayRef<c10::IValue>)>;

// Rules for frequent ops that have no shape function in C++; or null.
const ShapeRule* shape_rule(const OpInfo& op);

} // namespace lazyplug
