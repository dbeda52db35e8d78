#include "lowering/calls/indexed_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "kernels/parallel.h"
#include "lowering/calls/call_results.h"
#include "lowering/calls/dense_tensors.h"

namespace lazyplug {
namespace {

using Indices = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// Masks of more elements, and writes of more, are shared by several threads.
constexpr int64_t kMaxForOneThread = at::internal::GRAIN_SIZE - 1;

template <typename Visit>
void with_size(int64_t bytes, const Visit& visit) {
  switch (bytes) { // which the compiler knows how to copy
    case sizeof(float):
      return visit(std::integral_constant<int64_t, sizeof(float)>());
    case sizeof(double):
      return visit(std::integral_constant<int64_t, sizeof(double)>());
    default:
      visit(bytes);
  }
}

bool is_true(uint8_t truth) { // a view of bytes as truths may be of any
  return truth != 0;
}

// Eight at a time.
constexpr uint64_t kAllTrue = 0x0101'0101'0101'0101;
constexpr int64_t kRun = sizeof(kAllTrue);

uint64_t run_of(const uint8_t* truths) {
  uint64_t run = 0;
  std::memcpy(&run, truths, kRun);
  return run;
}

int64_t count_truths(const uint8_t* truths, int64_t size) {
  int64_t count = 0;
  int64_t begin = 0;
  for (; begin + kRun <= size; begin += kRun) {
    const uint64_t run = run_of(truths + begin);
    count += (run & ~kAllTrue) == 0 ? static_cast<int64_t>(run * kAllTrue >> 56) // the sum of the bytes
                                    : std::count_if(truths + begin, truths + begin + kRun, is_true);
  }
  return count + std::count_if(truths + begin, truths + size, is_true);
}

// Masks often are of one kind in long runs; in between, branches would be mispredicted.
template <typename T>
void fill_where(const uint8_t* truths, int64_t size, void* to, const void* number) {
  auto* elements = static_cast<T*>(to);
  T value;
  std::memcpy(&value, number, sizeof(T));
  const auto fill_some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T taken = static_cast<T>(-static_cast<T>(is_true(truths[i])));
      elements[i] = (elements[i] & ~taken) | (value & taken);
    }
  };
  int64_t begin = 0;
  for (; begin + kRun <= size; begin += kRun) {
    const uint64_t run = run_of(truths + begin);
    if (run == kAllTrue) {
      std::fill_n(elements + begin, kRun, value);
    } else if (run != 0) {
      fill_some(begin, begin + kRun);
    }
  }
  fill_some(begin, size);
}

// Those that indices name, in order: a row is what lies behind the dimensions that are indexed, which may lie behind
// others that are not. `self` has no gaps.
class NamedRows {
 public:
  // Nothing if the indices are of another kind.
  static std::optional<NamedRows> of(const c10::TensorImpl& self, Indices indices) {
    NamedRows rows(self);
    const auto* begin = std::find_if(indices.begin(), indices.end(), is_there);
    const auto* end = std::find_if_not(begin, indices.end(), is_there);
    rows.first_dim_ = begin - indices.begin();
    for (const auto* index = begin; index < end; ++index) {
      if (!rows.add(*index)) {
        return std::nullopt;
      }
    }
    return begin < end && std::none_of(end, indices.end(), is_there) && rows.has_sizes()
               ? std::optional(std::move(rows))
               : std::nullopt;
  }

  // Reads the indices. False if one names a row that is not there, or all of them none: results without elements have
  // strides of their own.
  bool read(MemoryOf memory_of) {
    if (mask_) {
      truths_ = static_cast<const uint8_t*>(memory_of(*mask_, /*written=*/false));
      count_ = truths_ ? count_truths(truths_, num_rows_) : 0;
      return count_ != 0;
    }
    return std::all_of(numbers_.begin(), numbers_.end(), [&](Numbers& numbers) {
      numbers.first = static_cast<const int64_t*>(memory_of(*numbers.tensor, /*written=*/false));
      return numbers.first && numbers.are_there(count_);
    });
  }

  bool is_mask() const {
    return mask_ != nullptr;
  }
  const uint8_t* truths() const {
    return truths_;
  }
  // How many there are; of a mask, once it is read.
  int64_t count() const {
    return num_outer_ * count_;
  }
  int64_t row_bytes() const {
    return row_bytes_;
  }
  int64_t row_elements() const {
    return row_bytes_ / static_cast<int64_t>(self_.itemsize());
  }
  bool is_any_of(const c10::Storage& storage) const {
    const auto is_of = [&](const Numbers& numbers) { return numbers.tensor->storage().is_alias_of(storage); };
    return (mask_ && mask_->storage().is_alias_of(storage)) || std::any_of(numbers_.begin(), numbers_.end(), is_of);
  }

  // Of what is taken, or put; of a mask, once it is read.
  c10::DimVector sizes() const {
    const auto all = self_.sizes();
    c10::DimVector sizes(all.begin(), all.begin() + first_dim_);
    mask_ ? sizes.push_back(count_)
          : sizes.append(numbers_[0].tensor->sizes().begin(), numbers_[0].tensor->sizes().end());
    sizes.append(all.begin() + first_dim_ + num_dims_, all.end());
    return sizes;
  }

  // Calls visit(place, row) for those from the one at `begin` up to `end`; of a mask, for all.
  template <typename Visit>
  void visit(int64_t begin, int64_t end, const Visit& visit) const {
    if (mask_) {
      int64_t place = 0;
      for (int64_t row = 0; row < num_rows_; ++row) {
        if (is_true(truths_[row])) {
          visit(place++, row);
        }
      }
    } else if (numbers_.size() == 1) {
      visit_numbered(begin, end, visit, [numbers = numbers_[0]](int64_t place) { return numbers.row(place); });
    } else {
      visit_numbered(begin, end, visit, [this](int64_t place) {
        int64_t row = 0;
        for (const Numbers& numbers : numbers_) {
          row += numbers.row(place);
        }
        return row;
      });
    }
  }

 private:
  // Of places along one dimension.
  struct Numbers {
    const c10::TensorImpl* tensor;
    int64_t stride;   // between one and the next
    int64_t size;     // of the dimension
    int64_t step = 1; // rows between one place and the next
    const int64_t* first = nullptr;

    bool are_there(int64_t count) const {
      for (int64_t i = 0; i < count; ++i) {
        if (first[i * stride] < -size || first[i * stride] >= size) {
          return false;
        }
      }
      return true;
    }
    int64_t row(int64_t place) const {
      const int64_t number = first[place * stride];
      return (number < 0 ? number + size : number) * step;
    }
  };

  explicit NamedRows(const c10::TensorImpl& self) : self_(self) {}

  bool add(const c10::IValue& argument) {
    const auto* index = plain_tensor(argument);
    const int64_t dim = first_dim_ + num_dims_;
    if (!index || mask_ || index->numel() == 0) {
      return false;
    }
    if (index->dtype() == at::kBool) {
      const auto covered = self_.sizes().slice(0, std::min(index->dim(), self_.dim()));
      mask_ = index;
      num_dims_ = index->dim();
      return dim == 0 && num_dims_ != 0 && index->is_contiguous() && index->sizes() == covered;
    }
    if (index->dtype() != at::kLong || dim >= self_.dim() || index->dim() == 0 ||
        (index->dim() > 1 && !index->is_contiguous())) {
      return false;
    }
    ++num_dims_;
    numbers_.push_back({index, index->dim() == 1 ? index->strides()[0] : 1, self_.sizes()[dim]});
    return index->sizes() == numbers_[0].tensor->sizes();
  }

  // Of what is indexed.
  bool has_sizes() {
    const auto product = [&](int64_t begin, int64_t end) {
      return c10::multiply_integers(self_.sizes().begin() + begin, self_.sizes().begin() + end);
    };
    const int64_t end = first_dim_ + num_dims_;
    num_outer_ = product(0, first_dim_);
    num_rows_ = product(first_dim_, end);
    row_bytes_ = product(end, self_.dim()) * static_cast<int64_t>(self_.itemsize());
    for (size_t i = 0; i < numbers_.size(); ++i) {
      numbers_[i].step = product(first_dim_ + static_cast<int64_t>(i) + 1, end);
    }
    count_ = mask_ ? 0 : numbers_[0].tensor->numel();
    return self_.numel() != 0 && (!mask_ || self_.numel() <= kMaxForOneThread);
  }

  template <typename Visit, typename RowAt>
  void visit_numbered(int64_t begin, int64_t end, const Visit& visit, const RowAt& row_at) const {
    int64_t first_row = begin / count_ * num_rows_;
    int64_t place = begin % count_;
    for (int64_t i = begin; i < end; ++i) {
      visit(i, first_row + row_at(place));
      if (++place == count_) {
        place = 0;
        first_row += num_rows_;
      }
    }
  }

  const c10::TensorImpl& self_;
  int64_t first_dim_ = 0; // that is indexed
  int64_t num_dims_ = 0;  // that are
  int64_t num_outer_ = 1; // times all rows
  int64_t num_rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t count_ = 0;                     // of those named among `num_rows_`
  const c10::TensorImpl* mask_ = nullptr; // or
  c10::SmallVector<Numbers, 2> numbers_;
  const uint8_t* truths_ = nullptr;
};

bool is_computable(const c10::TensorImpl& tensor) {
  return tensor.is_contiguous() && !at::isQIntType(c10::typeMetaToScalarType(tensor.dtype())) && tensor.numel() != 0;
}

// visit(begin, end, copy) calls copy(place, row) for these places.
template <typename Visit>
void copy_rows(int64_t begin, int64_t end, int64_t row_bytes, const void* memory, void* result, const Visit& visit) {
  with_size(row_bytes, [&](auto bytes) {
    const auto* from = static_cast<const char*>(memory);
    auto* to = static_cast<char*>(result);
    visit(begin, end, [&](int64_t place, int64_t row) { std::memcpy(to + place * bytes, from + row * bytes, bytes); });
  });
}

// By several threads, if there are many.
template <typename CopySome>
void copy_in_parts(int64_t count, int64_t row_elements, const CopySome& copy_some) {
  kernels::parallel_for(count, std::max<int64_t>(1, at::internal::GRAIN_SIZE / row_elements), copy_some);
}

void take(const NamedRows& rows, const void* memory, void* result) {
  const auto take_some = [&](int64_t begin, int64_t end) {
    copy_rows(begin, end, rows.row_bytes(), memory, result, [&](int64_t first, int64_t last, const auto& copy) {
      rows.visit(first, last, copy);
    });
  };
  rows.is_mask() ? take_some(0, rows.count()) : copy_in_parts(rows.count(), rows.row_elements(), take_some);
}

void put(const NamedRows& rows, void* memory, const void* values) {
  with_size(rows.row_bytes(), [&](auto bytes) {
    auto* to = static_cast<char*>(memory);
    const auto* from = static_cast<const char*>(values);
    rows.visit(0, rows.count(), [&](int64_t place, int64_t row) {
      std::memcpy(to + row * bytes, from + place * bytes, bytes);
    });
  });
}

// Whether elements are of a size that it goes for.
bool fill_where(int64_t size, const uint8_t* truths, int64_t count, void* to, const void* number) {
  switch (size) {
    case 1:
      fill_where<uint8_t>(truths, count, to, number);
      return true;
    case 2:
      fill_where<uint16_t>(truths, count, to, number);
      return true;
    case 4:
      fill_where<uint32_t>(truths, count, to, number);
      return true;
    case 8:
      fill_where<uint64_t>(truths, count, to, number);
      return true;
    default:
      return false;
  }
}

void put_number(const NamedRows& rows, const c10::TensorImpl& self, void* memory, const void* number) {
  const auto size = static_cast<int64_t>(self.itemsize());
  if (rows.is_mask() && rows.row_bytes() == size && fill_where(size, rows.truths(), self.numel(), memory, number)) {
    return;
  }
  with_size(size, [&](auto element) {
    auto* to = static_cast<char*>(memory);
    rows.visit(0, rows.count(), [&](int64_t /*place*/, int64_t row) {
      for (int64_t offset = 0; offset < rows.row_bytes(); offset += element) {
        std::memcpy(to + row * rows.row_bytes() + offset, number, element);
      }
    });
  });
}

// Of the same dtype, and as many as there are rows, or one.
bool can_be_put(const c10::TensorImpl& values, const NamedRows& rows) {
  const c10::DimVector sizes = rows.sizes();
  const bool is_number = values.numel() == 1 && values.dim() <= static_cast<int64_t>(sizes.size());
  return is_number || values.sizes() == c10::IntArrayRef(sizes);
}

void* memory_of_cpu(const c10::TensorImpl& tensor, bool written) {
  return !tensor.is_cpu() ? nullptr
         : written        ? const_cast<c10::TensorImpl&>(tensor).mutable_data()
                          : const_cast<void*>(tensor.data());
}

// A row for each index. Nothing is done, and false returned, if one is not there, or they are of another kind.
bool select_rows(const OpInfo& op, c10::Stack& stack, const c10::IValue& table, const c10::IValue& index) {
  const auto* from = dense_tensor(table);
  const auto places = dense_places(index);
  if (!from || from->dim() == 0 || from->is_quantized() || !places || !are_below(*places, from->size(0))) {
    return false;
  }
  c10::DimVector sizes(index.toTensor().sizes());
  sizes.append(from->sizes().begin() + 1, from->sizes().end());
  at::Tensor result = at::detail::empty_cpu(sizes, from->scalar_type());
  const int64_t row_elements = from->numel() / from->size(0);
  const int64_t row_bytes = row_elements * static_cast<int64_t>(from->itemsize());
  const void* memory = from->const_data_ptr();
  void* to = result.mutable_data_ptr();
  copy_in_parts(static_cast<int64_t>(places->size()), row_elements, [&](int64_t begin, int64_t end) {
    copy_rows(begin, end, row_bytes, memory, to, [&](int64_t first, int64_t last, const auto& copy) {
      for (int64_t i = first; i < last; ++i) {
        copy(i, (*places)[i]);
      }
    });
  });
  return_result(op, stack, std::move(result));
  return true;
}

} // namespace

at::Tensor
take_rows(const c10::TensorImpl& self, Indices indices, SmallCalls::MemoryOf memory_of, int64_t max_elements) {
  auto rows = is_computable(self) && has_strides_of_new(self) ? NamedRows::of(self, indices) : std::nullopt;
  if (!rows || !rows->read(memory_of) || rows->count() * rows->row_elements() > max_elements) {
    return {};
  }
  const void* memory = memory_of(self, /*written=*/false);
  at::Tensor result;
  if (memory) {
    result = at::detail::empty_cpu(rows->sizes(), c10::typeMetaToScalarType(self.dtype()));
    take(*rows, memory, result.mutable_data_ptr());
  }
  return result;
}

bool put_rows(
    const c10::TensorImpl& self,
    Indices indices,
    const c10::TensorImpl& values,
    SmallCalls::MemoryOf memory_of) {
  if (!is_computable(self) || !is_computable(values) || values.dtype() != self.dtype() ||
      self.numel() > kMaxForOneThread || values.storage().is_alias_of(self.storage())) {
    return false;
  }
  auto rows = NamedRows::of(self, indices);
  if (!rows || rows->count() > kMaxForOneThread || rows->is_any_of(self.storage()) || !rows->read(memory_of) ||
      !can_be_put(values, *rows)) {
    return false;
  }
  const void* from = memory_of(values, /*written=*/false);
  void* to = from ? memory_of(self, /*written=*/true) : nullptr;
  if (!to) {
    return false;
  }
  values.numel() == 1 ? put_number(*rows, self, to, from) : put(*rows, to, from);
  return true;
}

bool run_take_rows(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const auto* self = plain_tensor(arguments[0]);
  at::Tensor result;
  if (self) {
    result = take_rows(*self, arguments[1].toListRef(), memory_of_cpu);
  }
  if (!result.defined()) {
    return false;
  }
  return_result(op, stack, std::move(result));
  return true;
}

bool run_put_rows(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const auto* self = plain_tensor(arguments[0]);
  const auto* values = plain_tensor(arguments[2]);
  const bool accumulates = arguments[3].toBool();
  if (accumulates || !self || !values || !put_rows(*self, arguments[1].toListRef(), *values, memory_of_cpu)) {
    return false;
  }
  return_first_argument(op, stack);
  return true;
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
bool run_embedding(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const bool is_table = is_there(arguments[0]) && arguments[0].toTensor().dim() == 2;
  return is_table && select_rows(op, stack, arguments[0], arguments[1]);
}

// (self, dim, index)
bool run_index_select(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const int64_t dim = arguments[1].toInt();
  const bool is_first = is_there(arguments[0]) && (dim == 0 || dim == -arguments[0].toTensor().dim()) &&
                        is_there(arguments[2]) && arguments[2].toTensor().dim() == 1;
  return is_first && select_rows(op, stack, arguments[0], arguments[2]);
}

} // namespace lazyplug
