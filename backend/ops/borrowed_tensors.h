#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lazyplug {

// Tensors for somebody who only reads them: they are borrowed, and must live longer (see BorrowedArguments).
class BorrowedTensors {
 public:
  BorrowedTensors() = default;
  BorrowedTensors(const BorrowedTensors&) = delete;
  BorrowedTensors(BorrowedTensors&&) noexcept = default;
  BorrowedTensors& operator=(const BorrowedTensors&) = delete;
  BorrowedTensors& operator=(BorrowedTensors&& other) noexcept {
    std::swap(tensors_, other.tensors_); // what is borrowed may not be let go of
    return *this;
  }
  ~BorrowedTensors() {
    for (at::Tensor& tensor : tensors_) {
      c10::MaybeOwnedTraits<at::Tensor>::destroyBorrow(tensor);
    }
  }

  void reserve(size_t size) {
    tensors_.reserve(size);
  }
  void add(const at::Tensor& tensor) {
    tensors_.push_back(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(tensor));
  }
  operator at::TensorList() const { // NOLINT(google-explicit-constructor): that is what they are
    return tensors_;
  }

 private:
  std::vector<at::Tensor> tensors_;
};

} // namespace lazyplug
