#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// Whether a program without this package may call the op: it is PyTorch's own, and draws no random numbers.
bool is_reproducible(const OpInfo& op);

// Writes a Python program that calls a reproducible op on the CPU, and beside it the arguments, which it loads; then
// tries both: with what is read back from the file, the call must raise `message` again. Returns the program's path.
//
// Nothing, and no file, if the call raises nothing or something else, if the arguments are larger than 64 MiB, or if
// this process has tried 20 times. Files are in the folder `dump_dir`, or else in one of this process among the
// temporary files. Throws nothing.
std::optional<std::string> write_reproducer(const OpInfo& op, c10::Stack arguments, const std::string& message);

} // namespace lazyplug
