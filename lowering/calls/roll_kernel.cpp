#include "lowering/calls/roll_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstring>
#include <optional>

#include "lowering/calls/call_results.h"
#include "lowering/calls/dense_tensors.h"

namespace lazyplug {
namespace {

// By dimension, from 0 to its size. Nothing if PyTorch refuses them, or takes all dimensions as one.
std::optional<c10::DimVector> shifts_of(c10::IntArrayRef sizes, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  if (dims.empty() || dims.size() != shifts.size()) {
    return std::nullopt;
  }
  const auto num_dims = static_cast<int64_t>(sizes.size());
  c10::DimVector result(num_dims, 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] < 0 ? dims[i] + num_dims : dims[i];
    if (dim < 0 || dim >= num_dims) {
      return std::nullopt;
    }
    const int64_t shift = (result[dim] + shifts[i] % sizes[dim]) % sizes[dim];
    result[dim] = shift < 0 ? shift + sizes[dim] : shift;
  }
  return result;
}

// Of the dimensions from `dim` on, which are `bytes` long.
void roll(c10::IntArrayRef sizes, c10::IntArrayRef shifts, size_t dim, int64_t bytes, const char* from, char* to) {
  const int64_t size = sizes[dim];
  const int64_t bytes_of_one = bytes / size;
  if (dim + 1 == sizes.size()) {
    const int64_t bytes_of_shift = shifts[dim] * bytes_of_one;
    std::memcpy(to + bytes_of_shift, from, bytes - bytes_of_shift);
    std::memcpy(to, from + bytes - bytes_of_shift, bytes_of_shift);
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    const int64_t place = i + shifts[dim] < size ? i + shifts[dim] : i + shifts[dim] - size;
    roll(sizes, shifts, dim + 1, bytes_of_one, from + i * bytes_of_one, to + place * bytes_of_one);
  }
}

} // namespace

// (self, shifts, dims)
bool run_roll(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const auto* self = dense_tensor(arguments[0]);
  if (!self || self->dim() == 0 || self->is_quantized() || self->numel() >= at::internal::GRAIN_SIZE) {
    return false;
  }
  const auto shifts = shifts_of(self->sizes(), arguments[1].toDimVector(), arguments[2].toDimVector());
  if (!shifts) {
    return false;
  }
  // What lies behind the last dimension that is rolled goes along.
  size_t num_dims = self->dim();
  while (num_dims > 1 && (*shifts)[num_dims - 1] == 0) {
    --num_dims;
  }
  at::Tensor result = at::detail::empty_cpu(self->sizes(), self->scalar_type());
  roll(
      self->sizes().slice(0, num_dims),
      *shifts,
      0,
      static_cast<int64_t>(self->nbytes()),
      static_cast<const char*>(self->const_data_ptr()),
      static_cast<char*>(result.mutable_data_ptr()));
  return_result(op, stack, std::move(result));
  return true;
}

} // namespace lazyplug
