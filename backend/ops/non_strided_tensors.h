#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace lazyplug {

// Tensors that are more than a geometry on a storage: sparse and compressed ones
// consist of strided parts, nested ones of a buffer and its division, quantized
// ones have a quantizer. No trace can hold them.

// Null for strided tensors, else what the tensor is, as in "a sparse tensor".
const char* non_strided_kind(const c10::TensorImpl& tensor);

// Makes a strided tensor of another device that has the same memory.
using ConvertStrided = c10::function_ref<at::Tensor(const at::Tensor&)>;

// A tensor of the same kind made of converted parts. Its device is theirs.
at::Tensor convert_non_strided(const at::Tensor& tensor, ConvertStrided convert);

// Makes `tensor`, an argument that an op has written, what its converted `copy`
// has become.
void assign_non_strided(const at::Tensor& tensor, const at::Tensor& copy, ConvertStrided convert);

} // namespace lazyplug
