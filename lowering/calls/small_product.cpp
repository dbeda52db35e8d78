#include "lowering/calls/small_product.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <cmath>

#include "lowering/calls/plain_tensors.h"

namespace lazyplug {
namespace {

std::optional<kernels::Matrix> matrix_of(const Geometry& layout) {
  if (layout.sizes.size() != 2) {
    return std::nullopt;
  }
  return kernels::Matrix{layout.sizes[0], layout.sizes[1], layout.strides[0], layout.strides[1]};
}

// Of larger products, oneDNN may round the operands.
constexpr int64_t kNeverRounded = 16 * 16 * 16; // multiplications

} // namespace

std::optional<SmallProduct>
SmallProduct::plan(const Geometry* bias, const Geometry& a, const Geometry& b, const Geometry& result) {
  const auto first = matrix_of(a);
  const auto second = matrix_of(b);
  const auto made = matrix_of(result);
  if (!first || !second || !made || made->column_stride != 1 || made->row_stride != made->columns ||
      a.dtype != result.dtype || b.dtype != result.dtype) {
    return std::nullopt;
  }
  const auto product = kernels::Product::plan(result.dtype, *first, *second, *made);
  // Larger ones are not worth it, unless we are faster; they are filled by several threads, too.
  const bool is_small = result.numel() < at::internal::GRAIN_SIZE;
  if (!product || !(is_small || product->has_gemm())) {
    return std::nullopt;
  }
  SmallProduct plan;
  plan.dtype_ = result.dtype;
  plan.sizes_[0] = made->rows;
  plan.sizes_[1] = made->columns;
  plan.is_large_ = result.numel() * first->columns > kNeverRounded;
  plan.product_ = *product;
  return !bias || plan.plan_bias(*bias) ? std::optional(plan) : std::nullopt;
}

bool SmallProduct::plan_bias(const Geometry& bias) {
  adds_ = true;
  const auto strides = bias.strides_for(sizes_);
  if (!strides || bias.dtype != dtype_) {
    return false;
  }
  std::copy(strides->begin(), strides->end(), bias_strides_);
  return true;
}

bool SmallProduct::goes(double alpha, double beta) const {
  return (!adds_ || (beta == 1 && !std::isnan(alpha))) && !(is_large_ && may_round_operands(at::Float32Op::MATMUL));
}

bool SmallProduct::starts_from_bias(double alpha) const {
  return adds_ && product_.uses_gemm() && alpha == 1 && bias_strides_[1] == 1;
}

at::Tensor SmallProduct::run(double alpha, const void* a, const void* b, const void* bias) const {
  at::Tensor result = at::detail::empty_cpu(sizes_, dtype_);
  void* memory = result.mutable_data_ptr();
  if (starts_from_bias(alpha)) {
    product_.run_from(bias, bias_strides_[0], a, b, memory);
    return result;
  }
  if (adds_) {
    dtype_ == c10::ScalarType::Float ? copy_bias<float>(bias, memory) : copy_bias<double>(bias, memory);
  }
  product_.run(alpha, a, b, adds_ ? 1 : 0, memory);
  return result;
}

std::optional<kernels::VectorProduct> plan_vector_product(const Geometry& a, const Geometry& x) {
  const auto matrix = matrix_of(a);
  if (!matrix || x.sizes.size() != 1 || x.sizes[0] != matrix->columns || a.dtype != x.dtype ||
      a.numel() > kNeverRounded) {
    return std::nullopt;
  }
  return kernels::VectorProduct::plan(a.dtype, *matrix, x.strides[0]);
}

at::Tensor run_vector_product(const kernels::VectorProduct& product, const void* a, const void* x) {
  at::Tensor result = at::detail::empty_cpu({product.size()}, product.dtype());
  product.run(a, x, result.mutable_data_ptr());
  return result;
}

template <typename T>
void SmallProduct::copy_bias(const void* bias, void* result) const {
  const T* from = static_cast<const T*>(bias);
  T* to = static_cast<T*>(result);
  for (int64_t row = 0; row < sizes_[0]; ++row, from += bias_strides_[0], to += sizes_[1]) {
    if (bias_strides_[1] == 1) {
      std::copy_n(from, sizes_[1], to);
      continue;
    }
    for (int64_t column = 0; column < sizes_[1]; ++column) {
      to[column] = from[column * bias_strides_[1]];
    }
  }
}

} // namespace lazyplug
