#include "backend/recording/fast_kernels.h"

#include <ATen/EmptyTensor.h>

namespace lazyplug::fast_kernels {
namespace {

// A Python number as float32. The tensor is made once for each thread, unless
// somebody holds it.
at::Tensor float_number(float value) {
  static thread_local at::Tensor number;
  if (!number.defined() || number.use_count() > 1 || number.storage().use_count() > 1) {
    number = at::detail::empty_cpu({}, at::kFloat);
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  *number.mutable_data_ptr<float>() = value;
  return number;
}

bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

} // namespace

at::Tensor on_cpu(CpuTensors& tensors, const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor : tensors.borrowed_to_cpu(tensor);
}

std::optional<at::Tensor> on_cpu(CpuTensors& tensors, const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::make_optional(on_cpu(tensors, *tensor)) : tensor;
}

std::vector<at::Tensor> on_cpu(CpuTensors& tensors, const at::ITensorListRef& list) {
  std::vector<at::Tensor> result;
  result.reserve(list.size());
  for (const at::Tensor& tensor : list) {
    result.push_back(on_cpu(tensors, tensor));
  }
  return result;
}

c10::List<std::optional<at::Tensor>> on_cpu(CpuTensors& tensors, const c10::List<std::optional<at::Tensor>>& list) {
  c10::List<std::optional<at::Tensor>> result;
  result.reserve(list.size());
  for (const at::OptionalTensorRef& tensor : at::IOptTensorListRef(list)) {
    result.push_back(tensor.has_value() ? std::make_optional(on_cpu(tensors, *tensor)) : std::nullopt);
  }
  return result;
}

at::Tensor number_on_cpu(CpuTensors& tensors, const at::Tensor& tensor, const at::Tensor& other) {
  if (is_number(tensor) && tensor.is_cpu() && other.scalar_type() == at::kFloat && !is_number(other)) {
    if (const auto number = as_float(*tensor.unsafeGetTensorImpl())) {
      return float_number(*number);
    }
  }
  return on_cpu(tensors, tensor);
}

} // namespace lazyplug::fast_kernels
