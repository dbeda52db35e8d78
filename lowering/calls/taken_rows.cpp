#include "lowering/calls/taken_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "lowering/calls/plain_tensors.h"

namespace lazyplug {
namespace {

// Undefined if there are more indices, or none.
at::Tensor only_index(const c10::IValue& indices) {
  if (!indices.isList() || indices.toListRef().size() != 1) {
    return {};
  }
  const c10::IValue& index = indices.toListRef()[0];
  return is_there(index) ? index.toTensor() : at::Tensor();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg() && !at::isQIntType(tensor.scalar_type()) && tensor.numel() != 0;
}

// `count` rows of `self` that begin after its first `num_dims` dimensions, with other contents.
at::Tensor empty_rows(const at::Tensor& self, int64_t num_dims, int64_t count) {
  c10::DimVector sizes(self.sizes().begin() + num_dims, self.sizes().end());
  sizes.insert(sizes.begin(), count);
  return at::detail::empty_cpu(sizes, self.scalar_type());
}

void copy_row(char* to, const char* from, size_t bytes) {
  switch (bytes) { // which the compiler knows how to copy
    case sizeof(float):
      std::memcpy(to, from, sizeof(float));
      break;
    case sizeof(double):
      std::memcpy(to, from, sizeof(double));
      break;
    default:
      std::memcpy(to, from, bytes);
  }
}

// Undefined if an index is out of range.
at::Tensor take_by_numbers(const at::Tensor& self, const at::Tensor& index) {
  const int64_t num_rows = self.size(0);
  const auto* numbers = index.const_data_ptr<int64_t>();
  const int64_t count = index.numel();
  const auto is_in_range = [num_rows](int64_t number) { return -num_rows <= number && number < num_rows; };
  if (!std::all_of(numbers, numbers + count, is_in_range)) {
    return {};
  }
  at::Tensor result = empty_rows(self, 1, count);
  const size_t bytes = self.nbytes() / num_rows;
  const auto* from = static_cast<const char*>(self.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE * num_rows / self.numel());
  kernels::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = numbers[i] < 0 ? numbers[i] + num_rows : numbers[i];
      copy_row(to + i * bytes, from + row * bytes, bytes);
    }
  });
  return result;
}

// Undefined if none is taken: results without elements have strides of their own.
at::Tensor take_by_mask(const at::Tensor& self, const at::Tensor& mask) {
  const auto* truths = mask.const_data_ptr<bool>();
  const int64_t num_rows = mask.numel();
  const int64_t count = std::count(truths, truths + num_rows, true);
  if (count == 0) {
    return {};
  }
  at::Tensor result = empty_rows(self, mask.dim(), count);
  const size_t bytes = self.nbytes() / num_rows;
  const auto* from = static_cast<const char*>(self.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  for (int64_t row = 0; row < num_rows; ++row) {
    if (truths[row]) {
      copy_row(to, from + row * bytes, bytes);
      to += bytes;
    }
  }
  return result;
}

bool is_mask_of(const at::Tensor& index, const at::Tensor& self) {
  const bool is_for_one_thread = self.numel() < at::internal::GRAIN_SIZE;
  return is_for_one_thread && index.scalar_type() == at::kBool && index.dim() >= 1 && index.dim() <= self.dim() &&
         index.sizes() == self.sizes().slice(0, index.dim());
}

} // namespace

bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const at::Tensor index = only_index(arguments[1]);
  if (!index.defined() || !is_there(arguments[0])) {
    return false;
  }
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_plain(self) || !is_plain(index)) {
    return false;
  }
  at::Tensor result;
  if (is_mask_of(index, self)) {
    result = take_by_mask(self, index);
  } else if (index.scalar_type() == at::kLong && index.dim() == 1 && self.dim() >= 1) {
    result = take_by_numbers(self, index);
  }
  if (!result.defined()) {
    return false;
  }
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(result));
  return true;
}

} // namespace lazyplug
