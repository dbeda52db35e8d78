#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/product.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {

// aten::mm or aten::addmm with a small result, without what PyTorch's kernel asks and prepares each time, which takes
// longer than the product of small matrices itself; or with any that kernels/gemm.h computes. It has the bits of
// PyTorch's.
class SmallProduct {
 public:
  // `bias` is null if there is none. Nothing if that would not do the same as PyTorch's kernel, or is not worth it.
  static std::optional<SmallProduct>
  plan(const Geometry* bias, const Geometry& a, const Geometry& b, const Geometry& result);

  // Whether it does the same with these numbers, and as the program has set up PyTorch by now.
  bool goes(double alpha, double beta) const;

  // A new CPU tensor. The pointers are to where the matrices begin; with `bias`, beta is 1.
  at::Tensor run(double alpha, const void* a, const void* b, const void* bias) const;

 private:
  SmallProduct() = default;
  bool plan_bias(const Geometry& bias);
  bool starts_from_bias(double alpha) const;
  template <typename T>
  void copy_bias(const void* bias, void* result) const;

  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t sizes_[2] = {0, 0}; // of the result
  bool adds_ = false;
  int64_t bias_strides_[2] = {0, 0}; // as it is broadcast
  bool is_large_ = false;
  kernels::Product product_;
};

// aten::mv of a small matrix, likewise. Nothing if this would not do the same as PyTorch's kernel.
std::optional<kernels::VectorProduct> plan_vector_product(const Geometry& a, const Geometry& x);
// A new CPU tensor.
at::Tensor run_vector_product(const kernels::VectorProduct& product, const void* a, const void* x);

} // namespace lazyplug
