// What kernels of our own ask of the tensors of a call.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstring>

#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {

inline bool is_there(const c10::IValue& argument) {
  return argument.isTensor() && argument.toTensor().defined();
}

// Null: it is no tensor, or nothing that a kernel could be told where it is.
inline const c10::TensorImpl* plain_tensor(const c10::IValue& argument) {
  if (!argument.isTensor()) {
    return nullptr;
  }
  const auto* tensor = argument.unsafeToTensorImpl();
  const bool is_plain =
      tensor->has_storage() && tensor->layout() == at::kStrided && !tensor->is_conj() && !tensor->is_neg();
  return is_plain ? tensor : nullptr;
}

// In the order of its dimensions.
inline bool is_contiguous_float(const c10::IValue& argument) {
  return is_there(argument) && is_plain_float(argument.toTensor()) && argument.toTensor().is_contiguous();
}

// The strides of dimensions of one element are those of a new tensor, too: PyTorch's kernels lay out results by them.
inline bool has_strides_of_new(const c10::TensorImpl& tensor) {
  return Geometry::of(tensor).is_contiguous();
}
inline bool has_strides_of_new(const at::Tensor& tensor) {
  return has_strides_of_new(*tensor.unsafeGetTensorImpl());
}

// Of contiguous tensors: the same sizes, strides and bits.
inline bool has_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Whether the program allows oneDNN to round the operands of such calls.
inline bool may_round_operands(at::Float32Op op) {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, op);
  return precision == at::Float32Precision::BF16 || precision == at::Float32Precision::TF32;
}

} // namespace lazyplug
