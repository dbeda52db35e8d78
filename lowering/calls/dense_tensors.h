// What kernels for tensors without gaps ask of arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <optional>

#include "lowering/calls/plain_tensors.h"

namespace lazyplug {

// A CPU tensor without gaps, that has elements, and the strides of a new one. Null: it is none.
inline const at::Tensor* dense_tensor(const c10::IValue& argument) {
  const auto* tensor = plain_tensor(argument);
  const bool is_dense =
      tensor && tensor->is_cpu() && !tensor->_is_zerotensor() && tensor->numel() != 0 && has_strides_of_new(*tensor);
  return is_dense ? &argument.toTensor() : nullptr;
}

// Likewise, of float32 or float64.
inline const at::Tensor* dense_floats(const c10::IValue& argument) {
  const auto* tensor = dense_tensor(argument);
  const bool is_wide = tensor && (tensor->scalar_type() == at::kFloat || tensor->scalar_type() == at::kDouble);
  return is_wide ? tensor : nullptr;
}

using Places = c10::ArrayRef<int64_t>;

// The elements of such a tensor of int64. Nothing: it is none.
inline std::optional<Places> dense_places(const c10::IValue& argument) {
  const auto* tensor = dense_tensor(argument);
  const bool is_long = tensor && tensor->scalar_type() == at::kLong;
  return is_long ? std::optional(Places(tensor->const_data_ptr<int64_t>(), tensor->numel())) : std::nullopt;
}

inline bool are_below(Places places, int64_t size) {
  return std::all_of(places.begin(), places.end(), [size](int64_t place) { return place >= 0 && place < size; });
}

// visit(T()), for the dtype of what dense_floats() returns.
template <typename Visit>
auto with_dtype(const at::Tensor& floats, const Visit& visit) {
  return floats.scalar_type() == at::kFloat ? visit(float{}) : visit(double{});
}

} // namespace lazyplug
