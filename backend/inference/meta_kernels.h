#pragma once

#include <ATen/core/stack.h>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Replaces the arguments of a call, with Meta tensors, by what the op returns,
// without running Python. For most ops PyTorch puts a Meta kernel in Python before
// the one in C++, where the dispatcher no longer finds that; it takes a hundred
// times as long, and the first one loads modules for a second.
//
// The stack is as it was if nothing in C++ tells what the op returns, or it refuses the call, which does not mean that
// the CPU would.
enum class Told { kYes, kNothing, kRefused };
Told call_cpp_meta_kernel(const OpInfo& op, c10::Stack* stack);

} // namespace lazyplug
