#pragma once

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "lowering/ir/signature.h"

// Kernels of plain arithmetic convert a Python number among their operands to the
// type that they compute in, which takes them longer than the rest of their work.
// Next to a float32 tensor, a number that is float32 already is as good.
namespace lazyplug {

constexpr bool converts_numbers(std::string_view name, std::string_view overload) {
  constexpr std::string_view kNames[] =
      {"aten::add", "aten::sub", "aten::mul", "aten::div", "aten::add_", "aten::sub_", "aten::mul_", "aten::div_"};
  return overload == "Tensor" && std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Whether a call may be given its Python numbers as float32.
bool takes_float_numbers(const Signature& signature);

// A number as such an op converts it, or null if it is not of a type that Python's
// have.
std::optional<float> as_float(const c10::TensorImpl& number);

} // namespace lazyplug
