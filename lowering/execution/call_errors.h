#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <string>
#include <vector>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// "while running aten::mm(Float[2, 3] strides=[3, 1], None)": what is added to the error of a call.
std::string describe_call(const char* name, const std::vector<std::string>& operands);

// If there is room for it in an error of this kind.
void add_context(const std::exception_ptr& error, std::string context);

// Adds a program that raises the error of a reproducible op again (lowering/execution/reproducer.h), if one can be
// written.
void add_reproducer(const std::exception_ptr& error, const OpInfo& op, const c10::Stack& operands);

// What a call is given, kept until it has run. Lists of tensors pass for lists of optional tensors only if nobody else
// holds them.
c10::Stack copy_operands(const c10::Stack& operands);

} // namespace lazyplug
