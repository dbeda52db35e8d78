#include "lowering/calls/indexed_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <optional>

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

bool is_computable(const at::Tensor& tensor) {
  return is_plain(tensor) && tensor.is_cpu() && tensor.is_contiguous() && !at::isQIntType(tensor.scalar_type()) &&
         tensor.numel() != 0;
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

bool is_mask_of(const at::Tensor& index, const at::Tensor& self) {
  const bool is_for_one_thread = self.numel() < at::internal::GRAIN_SIZE;
  return is_for_one_thread && index.scalar_type() == at::kBool && index.dim() >= 1 && index.dim() <= self.dim() &&
         index.sizes() == self.sizes().slice(0, index.dim());
}

// Those that an index names, in order.
class NamedRows {
 public:
  // Nothing if the index is of another kind, names a row that is not there, or none: results without elements have
  // strides of their own.
  static std::optional<NamedRows> of(const at::Tensor& self, const at::Tensor& index) {
    NamedRows rows;
    if (is_mask_of(index, self)) {
      rows.truths_ = static_cast<const uint8_t*>(index.const_data_ptr());
      rows.num_rows_ = index.numel();
      rows.count_ = std::count_if(rows.truths_, rows.truths_ + rows.num_rows_, is_true);
    } else if (index.scalar_type() == at::kLong && index.dim() == 1 && self.dim() >= 1) {
      rows.numbers_ = index.const_data_ptr<int64_t>();
      rows.num_rows_ = self.size(0);
      rows.count_ = index.numel();
    }
    return rows.count_ != 0 && rows.are_there() ? std::optional(rows) : std::nullopt;
  }

  int64_t num_rows() const {
    return num_rows_;
  }
  int64_t count() const {
    return count_;
  }
  bool are_by_number() const {
    return numbers_ != nullptr;
  }

  // Calls visit(place, row) for each; of those by number, from the one at `begin` up to `end`.
  template <typename Visit>
  void visit(int64_t begin, int64_t end, const Visit& visit) const {
    if (numbers_) {
      for (int64_t place = begin; place < end; ++place) {
        visit(place, numbers_[place] < 0 ? numbers_[place] + num_rows_ : numbers_[place]);
      }
      return;
    }
    int64_t place = 0;
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (is_true(truths_[row])) {
        visit(place++, row);
      }
    }
  }

 private:
  // A view of bytes as truths may be of any.
  static bool is_true(uint8_t truth) {
    return truth != 0;
  }
  bool are_there() const {
    const auto is_there = [this](int64_t number) { return -num_rows_ <= number && number < num_rows_; };
    return !numbers_ || std::all_of(numbers_, numbers_ + count_, is_there);
  }

  const int64_t* numbers_ = nullptr; // or
  const uint8_t* truths_ = nullptr;
  int64_t num_rows_ = 0;
  int64_t count_ = 0;
};

at::Tensor take(const at::Tensor& self, const NamedRows& rows, int64_t num_dims) {
  at::Tensor result = empty_rows(self, num_dims, rows.count());
  const size_t bytes = self.nbytes() / rows.num_rows();
  const auto* from = static_cast<const char*>(self.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  const auto take_some = [&](int64_t begin, int64_t end) {
    rows.visit(begin, end, [&](int64_t place, int64_t row) {
      copy_row(to + place * bytes, from + row * bytes, bytes);
    });
  };
  if (rows.are_by_number()) {
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE * rows.num_rows() / self.numel());
    kernels::parallel_for(rows.count(), grain, take_some);
  } else {
    take_some(0, rows.count());
  }
  return result;
}

void put_rows(const at::Tensor& self, const NamedRows& rows, const at::Tensor& values) {
  const size_t bytes = self.nbytes() / rows.num_rows();
  auto* to = static_cast<char*>(self.mutable_data_ptr());
  const auto* from = static_cast<const char*>(values.const_data_ptr());
  rows.visit(0, rows.count(), [&](int64_t place, int64_t row) {
    copy_row(to + row * bytes, from + place * bytes, bytes);
  });
}

void put_number(const at::Tensor& self, const NamedRows& rows, const at::Tensor& number) {
  const size_t bytes = self.nbytes() / rows.num_rows();
  const size_t size = self.element_size();
  auto* to = static_cast<char*>(self.mutable_data_ptr());
  const auto* from = static_cast<const char*>(number.const_data_ptr());
  rows.visit(0, rows.count(), [&](int64_t /*place*/, int64_t row) {
    for (size_t offset = 0; offset < bytes; offset += size) {
      copy_row(to + row * bytes + offset, from, size);
    }
  });
}

// Whether these are `count` rows of `self`, which begin after its first `num_dims` dimensions.
bool are_rows_of(const at::Tensor& values, const at::Tensor& self, int64_t num_dims, int64_t count) {
  return values.dim() == self.dim() - num_dims + 1 && values.size(0) == count &&
         values.sizes().slice(1) == self.sizes().slice(num_dims);
}

} // namespace

bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const at::Tensor index = only_index(arguments[1]);
  if (!is_there(arguments[0]) || !index.defined()) {
    return false;
  }
  const at::Tensor& self = arguments[0].toTensor();
  const bool has_usual_result = is_computable(self) && has_strides_of_new(self);
  const auto rows = has_usual_result && is_computable(index) ? NamedRows::of(self, index) : std::nullopt;
  if (!rows) {
    return false;
  }
  at::Tensor result = take(self, *rows, index.dim());
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(result));
  return true;
}

bool run_put_rows(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const at::Tensor index = only_index(arguments[1]);
  const bool accumulates = arguments[3].toBool();
  if (!is_there(arguments[0]) || !index.defined() || !is_there(arguments[2]) || accumulates) {
    return false;
  }
  at::Tensor self = arguments[0].toTensor();
  const at::Tensor& values = arguments[2].toTensor();
  const bool is_for_one_thread = self.numel() < at::internal::GRAIN_SIZE && index.numel() < at::internal::GRAIN_SIZE;
  if (!is_for_one_thread || !is_computable(self) || !is_computable(index) || !is_computable(values) ||
      values.scalar_type() != self.scalar_type() || values.is_alias_of(self) || index.is_alias_of(self)) {
    return false;
  }
  const int64_t num_dims = index.dim();
  const auto rows = NamedRows::of(self, index);
  if (rows && values.numel() == 1 && values.dim() <= self.dim() - num_dims + 1) {
    put_number(self, *rows, values);
  } else if (rows && are_rows_of(values, self, num_dims, rows->count())) {
    put_rows(self, *rows, values);
  } else {
    return false;
  }
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(self));
  return true;
}

} // namespace lazyplug
