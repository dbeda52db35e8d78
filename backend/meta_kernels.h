#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "lowering/op_info.h"

namespace lazyplug {

// The C++ Meta kernel of a frequent op, or null if the table in
// meta_kernels.cpp does not name it. The dispatcher cannot be asked for it: for
// most ops PyTorch puts a kernel in Python before, which takes a hundred times
// as long, and whose first call loads modules for a second.
const c10::KernelFunction* cpp_meta_kernel(const OpInfo& op);

} // namespace lazyplug
