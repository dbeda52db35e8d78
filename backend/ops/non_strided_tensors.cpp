#include "backend/ops/non_strided_tensors.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace lazyplug {
namespace {

using at::native::get_nested_tensor_impl;
using at::sparse::get_sparse_impl;
using at::sparse_csr::get_sparse_csr_impl;

c10::DispatchKeySet keys_of(const at::Tensor& tensor, c10::Device device) {
  return c10::DispatchKeySet(c10::computeDispatchKey(tensor.scalar_type(), tensor.layout(), device));
}

void assign_sparse(at::SparseTensorImpl& to, const at::SparseTensorImpl& from, ConvertStrided convert) {
  to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  to.set_indices_and_values_unsafe(convert(from.indices()), convert(from.values()));
  to.set_coalesced(from.coalesced());
}

at::Tensor convert_sparse(const at::Tensor& tensor, ConvertStrided convert) {
  const auto& from = *get_sparse_impl(tensor);
  const c10::Device device = convert(from.values()).device();
  const c10::DeviceGuard guard(device); // it is of the current device
  auto result = at::detail::make_tensor<at::SparseTensorImpl>(keys_of(tensor, device), tensor.dtype());
  assign_sparse(*get_sparse_impl(result), from, convert);
  return result;
}

void assign_compressed(at::SparseCsrTensorImpl& to, at::SparseCsrTensorImpl& from, ConvertStrided convert) {
  to.set_layout(from.layout());
  to.set_member_tensors(
      convert(from.compressed_indices()),
      convert(from.plain_indices()),
      convert(from.values()),
      from.sizes());
}

at::Tensor convert_compressed(const at::Tensor& tensor, ConvertStrided convert) {
  auto& from = *get_sparse_csr_impl(tensor);
  const c10::Device device = convert(from.values()).device();
  auto result = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      keys_of(tensor, device),
      device,
      tensor.layout(),
      tensor.dtype());
  assign_compressed(*get_sparse_csr_impl(result), from, convert);
  return result;
}

at::QTensorImpl& quantized_impl(const at::Tensor& tensor) {
  return *static_cast<at::QTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void assign_quantized(at::QTensorImpl& to, at::QTensorImpl& from, const at::Tensor& part) {
  to.set_storage_keep_dtype(part.storage());
  to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  to.set_quantizer_(from.quantizer());
}

at::Tensor convert_quantized(const at::Tensor& tensor, ConvertStrided convert) {
  const at::Tensor part = convert(tensor);
  auto& from = quantized_impl(tensor);
  auto result = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(part.storage()),
      keys_of(tensor, part.device()),
      tensor.dtype(),
      from.quantizer());
  assign_quantized(quantized_impl(result), from, part);
  return result;
}

at::Tensor convert_nested(const at::Tensor& tensor, ConvertStrided convert) {
  const auto& from = *get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      convert(from.get_unsafe_storage_as_tensor()),
      from.get_nested_sizes(),
      from.get_nested_strides(),
      from.get_storage_offsets());
}

} // namespace

const char* non_strided_kind(const c10::TensorImpl& tensor) {
  if (tensor.is_nested()) {
    return "a nested tensor";
  }
  if (tensor.is_quantized()) {
    return "a quantized tensor";
  }
  return tensor.layout() == c10::kStrided ? nullptr : "a tensor that is not strided";
}

at::Tensor convert_non_strided(const at::Tensor& tensor, ConvertStrided convert) {
  if (tensor.is_nested()) {
    return convert_nested(tensor, convert);
  }
  if (tensor.is_quantized()) {
    return convert_quantized(tensor, convert);
  }
  if (tensor.is_sparse()) {
    return convert_sparse(tensor, convert);
  }
  return at::sparse_csr::is_sparse_compressed(tensor) ? convert_compressed(tensor, convert) : tensor;
}

void assign_non_strided(const at::Tensor& tensor, const at::Tensor& copy, ConvertStrided convert) {
  if (tensor.is_sparse()) {
    assign_sparse(*get_sparse_impl(tensor), *get_sparse_impl(copy), convert);
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    assign_compressed(*get_sparse_csr_impl(tensor), *get_sparse_csr_impl(copy), convert);
  } else if (tensor.is_quantized()) {
    assign_quantized(quantized_impl(tensor), quantized_impl(copy), convert(copy));
  }
  // Nothing changes the division of a nested tensor in place.
}

} // namespace lazyplug
