#include "lowering/calls/small_copy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "lowering/calls/element_line.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/calls/small_pointwise.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// A tensor of elements one after the other, or along one dimension that is more than one element long, or along none.
// What is read is one element.
std::optional<ElementLine> line_of(const c10::TensorImpl& to) {
  const auto item = static_cast<int64_t>(to.itemsize());
  if (to.is_non_overlapping_and_dense()) {
    return ElementLine{to.numel(), item, 0};
  }
  ElementLine line{1, item, 0};
  for (int64_t dim = 0; dim < to.dim(); ++dim) {
    if (to.size(dim) == 1) {
      continue;
    }
    if (line.size != 1 || to.stride(dim) == 0) {
      return std::nullopt;
    }
    line = {to.size(dim), to.stride(dim) * item, 0};
  }
  return line;
}

// The same, where what is read is another tensor, of as many elements or one.
std::optional<ElementLine> line_of(const c10::TensorImpl& to, const c10::TensorImpl& from) {
  if (from.dim() > to.dim()) {
    return std::nullopt;
  }
  const auto item = static_cast<int64_t>(to.itemsize());
  auto line = line_of(to);
  if (!line || from.numel() == 1) {
    return line;
  }
  if (to.sizes() != from.sizes()) {
    return std::nullopt;
  }
  if (to.is_non_overlapping_and_dense() && to.strides() == from.strides()) {
    line->from = item;
    return line;
  }
  // Along the only dimension of more than one element.
  const auto sizes = to.sizes();
  const auto is_long = [](int64_t size) { return size != 1; };
  const auto* found = std::find_if(sizes.begin(), sizes.end(), is_long);
  if (std::find_if(found + 1, sizes.end(), is_long) != sizes.end()) {
    return std::nullopt;
  }
  line->from = from.stride(found - sizes.begin()) * item;
  return line;
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
    char element[sizeof(double)];
    if (!line || !convert(number, c10::typeMetaToScalarType(to.dtype()), element)) {
      return false;
    }
    auto* const memory = static_cast<char*>(memory_of(to, /*written=*/true));
    if (memory) {
      copy_line(*line, to.itemsize(), memory, element);
    }
    return memory != nullptr;
  }

  static bool copy_from(const c10::TensorImpl& to, const c10::IValue& argument, MemoryOf memory_of) {
    const auto* from = plain_tensor(argument);
    if (!from || from->dtype() != to.dtype() || from->storage().is_alias_of(to.storage())) {
      return false;
    }
    const auto line = line_of(to, *from);
    if (!line) {
      return false;
    }
    auto* const memory = static_cast<char*>(memory_of(to, /*written=*/true));
    const auto* const source = memory ? static_cast<const char*>(memory_of(*from, /*written=*/false)) : nullptr;
    if (source) {
      copy_line(*line, to.itemsize(), memory, source);
    }
    return source != nullptr;
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
