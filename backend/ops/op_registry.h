#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lowering/ir/op_info.h"

namespace lazyplug {

// The description of an op, made at the first call, alive for ever. When the op is
// deregistered, that of a later op of this name is another one.
const OpInfo& op_info(const c10::OperatorHandle& handle);
const OpInfo& op_info(const char* name, const char* overload);

// Of the op "mylib::scale", or "mylib::scale.out", if it has been asked for.
OpInfo* find_op(const std::string& name);

// The shapes of what an op of another library returns, all overloads of it or the
// one that is named, do not depend on numbers. Takes effect from the next call on.
void declare_numbers_inputs(const std::string& name);

// All registered ops of a namespace, such as "c10d::", that have a schema.
std::vector<c10::OperatorHandle> ops_of(std::string_view name_space);
// Those of PyTorch's own, which are asked for several times.
const std::vector<c10::OperatorHandle>& aten_ops();

} // namespace lazyplug
