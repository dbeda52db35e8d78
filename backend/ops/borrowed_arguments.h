#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>

namespace lazyplug {

// The arguments of a call, boxed, for somebody who only reads them: tensors are borrowed, and must live longer. A
// second reference to a tensor that Python knows takes Python's lock, and so does letting go of it.
template <size_t N>
class BorrowedArguments {
 public:
  // What is boxed by then would be let go of, if something raised.
  template <typename... Args>
  explicit BorrowedArguments(const Args&... args) noexcept : values_{box(args)...} {}
  BorrowedArguments(const BorrowedArguments&) = delete;
  BorrowedArguments& operator=(const BorrowedArguments&) = delete;
  ~BorrowedArguments() {
    for (c10::IValue& value : values_) {
      if (value.isTensor()) {
        c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(value);
      }
    }
  }

  operator c10::ArrayRef<c10::IValue>() const { // NOLINT(google-explicit-constructor): that is what they are
    return values_;
  }

 private:
  static c10::IValue box(const at::Tensor& tensor) {
    return {c10::MaybeOwnedTraits<at::Tensor>::createBorrow(tensor)};
  }
  static c10::IValue box(const std::optional<at::Tensor>& tensor) {
    return tensor ? box(*tensor) : c10::IValue();
  }
  template <typename T>
  static c10::IValue box(const T& value) {
    return c10::IValue(value);
  }

  std::array<c10::IValue, N> values_;
};

template <typename... Args>
BorrowedArguments(const Args&...) -> BorrowedArguments<sizeof...(Args)>;

} // namespace lazyplug
