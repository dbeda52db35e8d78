#include "lowering/calls/small_copy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "lowering/calls/plain_tensors.h"
#include "lowering/calls/small_pointwise.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// Elements one after the other, as many steps apart.
struct Line {
  int64_t num_elements = 1;
  int64_t stride = 1;      // of what is written
  int64_t from_stride = 0; // of what is read
};

// What a tensor is along one dimension that is more than one element long, or along none.
std::optional<Line> line_of(const c10::TensorImpl& to) {
  if (to.is_non_overlapping_and_dense()) {
    return Line{to.numel(), 1, 0};
  }
  Line line;
  for (int64_t dim = 0; dim < to.dim(); ++dim) {
    if (to.size(dim) == 1) {
      continue;
    }
    if (line.num_elements != 1 || to.stride(dim) == 0) {
      return std::nullopt;
    }
    line = {to.size(dim), to.stride(dim), 0};
  }
  return line;
}

// Of which another tensor is broadcast.
std::optional<Line> line_of(const c10::TensorImpl& to, const c10::TensorImpl& from) {
  if (from.dim() > to.dim()) {
    return std::nullopt;
  }
  auto line = line_of(to);
  if (!line || from.numel() == 1) {
    return line;
  }
  if (to.sizes() != from.sizes()) {
    return std::nullopt;
  }
  if (to.is_non_overlapping_and_dense() && to.strides() == from.strides()) {
    line->from_stride = 1;
    return line;
  }
  // Along the only dimension of more than one element.
  const auto sizes = to.sizes();
  const auto is_long = [](int64_t size) { return size != 1; };
  const auto* found = std::find_if(sizes.begin(), sizes.end(), is_long);
  if (std::find_if(found + 1, sizes.end(), is_long) != sizes.end()) {
    return std::nullopt;
  }
  line->from_stride = from.stride(found - sizes.begin());
  return line;
}

template <typename T>
void copy_each(const Line& line, T* to, const T* from) {
  for (int64_t i = 0; i < line.num_elements; ++i) {
    to[i * line.stride] = from[i * line.from_stride];
  }
}

// Whether there are elements of this size.
bool copy(const Line& line, size_t size, void* to, const void* from) {
  if (line.num_elements == 1 || (line.stride == 1 && line.from_stride == 1)) {
    std::memcpy(to, from, static_cast<size_t>(line.num_elements) * size);
    return true;
  }
  switch (size) {
    case 1:
      copy_each(line, static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from));
      return true;
    case 2:
      copy_each(line, static_cast<uint16_t*>(to), static_cast<const uint16_t*>(from));
      return true;
    case 4:
      copy_each(line, static_cast<uint32_t*>(to), static_cast<const uint32_t*>(from));
      return true;
    case 8:
      copy_each(line, static_cast<uint64_t*>(to), static_cast<const uint64_t*>(from));
      return true;
    default:
      return false;
  }
}

// The number as an element. False if PyTorch's kernel has to say what it becomes.
bool convert(const c10::IValue& number, c10::ScalarType dtype, void* element) {
  const auto value = real_number(number);
  if (value && dtype == at::kFloat && !overflows_float(*value)) {
    const auto rounded = static_cast<float>(number_for(dtype, number));
    std::memcpy(element, &rounded, sizeof(rounded));
  } else if (value && dtype == at::kDouble) {
    std::memcpy(element, &*value, sizeof(*value));
  } else if (number.isInt() && dtype == at::kLong) {
    const int64_t integer = number.toInt();
    std::memcpy(element, &integer, sizeof(integer));
  } else {
    return false;
  }
  return true;
}

class SmallCopies final : public SmallCalls {
 public:
  SmallCopies(bool fills, std::unique_ptr<const SmallCalls> others) : fills_(fills), others_(std::move(others)) {}

 private:
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* to = plain_tensor(arguments[0]);
    const bool is_done = to && to->numel() != 0 && to->numel() <= kMaxElements &&
                         (fills_ ? fill(*to, arguments[1], memory_of) : copy_from(*to, arguments[1], memory_of));
    return is_done ? arguments[0].toTensor() : others_ ? others_->run(arguments, memory_of) : at::Tensor();
  }

  static bool fill(const c10::TensorImpl& to, const c10::IValue& number, MemoryOf memory_of) {
    const auto line = line_of(to);
    alignas(8) std::byte element[8];
    if (!line || !convert(number, c10::typeMetaToScalarType(to.dtype()), element)) {
      return false;
    }
    void* const memory = memory_of(to, /*written=*/true);
    return memory && copy(*line, to.itemsize(), memory, element);
  }

  static bool copy_from(const c10::TensorImpl& to, const c10::IValue& argument, MemoryOf memory_of) {
    const auto* from = plain_tensor(argument);
    if (!from || from->dtype() != to.dtype() || from->storage().is_alias_of(to.storage())) {
      return false;
    }
    const auto line = line_of(to, *from);
    if (!line || to.itemsize() > sizeof(uint64_t)) {
      return false;
    }
    void* const memory = memory_of(to, /*written=*/true);
    const void* const source = memory ? memory_of(*from, /*written=*/false) : nullptr;
    return source && copy(*line, to.itemsize(), memory, source);
  }

  const bool fills_;
  const std::unique_ptr<const SmallCalls> others_;
};

} // namespace

std::unique_ptr<const SmallCalls> make_small_copy(const OpInfo& op) {
  const bool fills = op.name() == "aten::fill_.Scalar";
  return fills || op.name() == "aten::copy_" ? std::make_unique<SmallCopies>(fills, make_small_pointwise(op)) : nullptr;
}

} // namespace lazyplug
