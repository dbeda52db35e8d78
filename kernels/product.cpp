#include "kernels/product.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/blas_kernels.h"

namespace {

template <typename T>
using BlasGemm = void (*)(
    const char* transpose_a,
    const char* transpose_b,
    const int* rows,
    const int* columns,
    const int* inner,
    const T* alpha,
    const T* a,
    const int* leading_a,
    const T* b,
    const int* leading_b,
    const T* beta,
    T* result,
    const int* leading_result);

template <typename T>
using BlasDot = T (*)(const int* size, const T* a, const int* stride_a, const T* b, const int* stride_b);
template <typename T>
using BlasGemv = void (*)(
    const char* transposed,
    const int* rows,
    const int* columns,
    const T* alpha,
    const T* a,
    const int* leading,
    const T* x,
    const int* stride_x,
    const T* beta,
    T* y,
    const int* stride_y);

} // namespace

// Not there if PyTorch has been built without BLAS.
extern "C" {
__attribute__((weak)) std::remove_pointer_t<BlasGemm<float>> sgemm_;
__attribute__((weak)) std::remove_pointer_t<BlasGemm<double>> dgemm_;
__attribute__((weak)) std::remove_pointer_t<BlasGemv<float>> sgemv_;
__attribute__((weak)) std::remove_pointer_t<BlasGemv<double>> dgemv_;
__attribute__((weak)) std::remove_pointer_t<BlasDot<float>> sdot_;
__attribute__((weak)) std::remove_pointer_t<BlasDot<double>> ddot_;
}

namespace lazyplug::kernels {
namespace {

// That of two functions which takes T. On other processors PyTorch has more kernels than BLAS for these.
template <typename T, typename OfFloats, typename OfDoubles>
auto of_blas(OfFloats* of_floats, OfDoubles* of_doubles) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>) {
    return of_floats;
  } else {
    return of_doubles;
  }
#else
  return static_cast<std::conditional_t<std::is_same_v<T, float>, OfFloats, OfDoubles>*>(nullptr);
#endif
}

template <typename T>
BlasGemm<T> blas_gemm() {
  return of_blas<T>(sgemm_, dgemm_);
}
template <typename T>
BlasGemv<T> blas_gemv() {
  return of_blas<T>(sgemv_, dgemv_);
}
template <typename T>
BlasDot<T> blas_dot() {
  return of_blas<T>(sdot_, ddot_);
}

bool has_blas(c10::ScalarType dtype) {
  return (dtype == c10::ScalarType::Float && blas_gemm<float>()) ||
         (dtype == c10::ScalarType::Double && blas_gemm<double>());
}

template <typename T>
void call_dot(int64_t size, const void* a, int64_t stride_a, const void* b, int64_t stride_b, void* result) {
  const auto count = static_cast<int>(size);
  const int first_stride = size == 1 ? 1 : static_cast<int>(stride_a);
  const int second_stride = size == 1 ? 1 : static_cast<int>(stride_b);
  *static_cast<T*>(result) =
      blas_dot<T>()(&count, static_cast<const T*>(a), &first_stride, static_cast<const T*>(b), &second_stride);
}

bool fits(int64_t number) {
  return number <= std::numeric_limits<int>::max();
}

Matrix transposed(const Matrix& matrix) {
  return {matrix.columns, matrix.rows, matrix.column_stride, matrix.row_stride};
}

bool is_by_columns(const Matrix& result) {
  return result.row_stride == 1 && (result.columns == 1 || result.column_stride >= result.rows);
}

} // namespace

// A stride that says nothing, since there is only one row or column, may be anything.
std::optional<Product::Operand>
Product::operand(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if (row_stride == 1 && column_stride >= rows && fits(column_stride)) {
    return Operand{false, static_cast<int>(columns == 1 ? rows : column_stride)};
  }
  if (column_stride == 1 && row_stride >= columns && fits(row_stride)) {
    return Operand{true, static_cast<int>(rows == 1 ? columns : row_stride)};
  }
  return std::nullopt;
}

std::optional<Product>
Product::plan_blas(c10::ScalarType dtype, const Matrix& a, const Matrix& b, const Matrix& result) {
  Product plan;
  plan.dtype_ = dtype;
  plan.is_swapped_ = !is_by_columns(result);
  const Matrix first = plan.is_swapped_ ? transposed(b) : a;
  const Matrix second = plan.is_swapped_ ? transposed(a) : b;
  const Matrix made = plan.is_swapped_ ? transposed(result) : result;
  const int64_t smallest = std::min({first.rows, first.columns, second.columns});
  const int64_t largest = std::max({first.rows, first.columns, second.columns});
  if (!has_blas(dtype) || smallest == 0 || !fits(largest) || !is_by_columns(made) || !fits(made.column_stride) ||
      first.columns != second.rows || made.rows != first.rows || made.columns != second.columns) {
    return std::nullopt;
  }
  const auto first_operand = operand(first.rows, first.columns, first.row_stride, first.column_stride);
  const auto second_operand = operand(second.rows, second.columns, second.row_stride, second.column_stride);
  if (!first_operand || !second_operand) {
    return std::nullopt;
  }
  plan.rows_ = static_cast<int>(first.rows);
  plan.columns_ = static_cast<int>(second.columns);
  plan.inner_ = static_cast<int>(first.columns);
  plan.first_ = *first_operand;
  plan.second_ = *second_operand;
  plan.leading_ = static_cast<int>(made.columns == 1 ? made.rows : made.column_stride);
  return plan;
}

std::optional<Product> Product::plan(c10::ScalarType dtype, const Matrix& a, const Matrix& b, const Matrix& result) {
  auto plan = plan_blas(dtype, a, b, result);
  const ProductSizes sizes{a.rows, b.columns, a.columns, b.column_stride == 1};
  if (plan && dtype == c10::ScalarType::Float && result.column_stride == 1 && result.row_stride >= result.columns &&
      !is_small(sizes) && kernels::has_gemm(blas_kernels(), sizes)) {
    plan->has_gemm_ = true;
    plan->gemm_ = {
        .rows = a.rows,
        .columns = b.columns,
        .inner = a.columns,
        .a = {nullptr, a.row_stride, a.column_stride},
        .b = {nullptr, b.row_stride, b.column_stride},
        .start = nullptr,
        .start_row = 0,
        .result = nullptr,
        .result_row = result.row_stride,
        .longest_block = longest_block(blas_kernels())};
  }
  return plan;
}

template <typename T>
void Product::call(T alpha, const void* a, const void* b, T beta, void* result) const {
  if (is_swapped_) {
    std::swap(a, b);
  }
  blas_gemm<T>()(
      first_.is_transposed ? "t" : "n",
      second_.is_transposed ? "t" : "n",
      &rows_,
      &columns_,
      &inner_,
      &alpha,
      static_cast<const T*>(a),
      &first_.leading,
      static_cast<const T*>(b),
      &second_.leading,
      &beta,
      static_cast<T*>(result),
      &leading_);
}

bool Product::uses_gemm() const {
  const ProductSizes sizes{gemm_.rows, gemm_.columns, gemm_.inner, gemm_.b.column_stride == 1};
  return has_gemm_ && has_bits_of_blas(blas_kernels(), sizes, at::get_num_threads());
}

void Product::run_from(const void* start, int64_t start_row, const void* a, const void* b, void* result) const {
  Gemm gemm = gemm_;
  gemm.a.data = static_cast<const float*>(a);
  gemm.b.data = static_cast<const float*>(b);
  gemm.start = static_cast<const float*>(start);
  gemm.start_row = start_row;
  gemm.result = static_cast<float*>(result);
  kernels::run(gemm);
}

void Product::run(double alpha, const void* a, const void* b, double beta, void* result) const {
  if (uses_gemm() && alpha == 1 && (beta == 0 || beta == 1)) {
    return run_from(beta == 0 ? nullptr : result, gemm_.result_row, a, b, result);
  }
  dtype_ == c10::ScalarType::Float ? call<float>(static_cast<float>(alpha), a, b, static_cast<float>(beta), result)
                                   : call<double>(alpha, a, b, beta, result);
}

std::optional<VectorProduct> VectorProduct::plan(c10::ScalarType dtype, const Matrix& a, int64_t stride) {
  const bool has_gemv = (dtype == c10::ScalarType::Float && blas_gemv<float>()) ||
                        (dtype == c10::ScalarType::Double && blas_gemv<double>());
  const bool is_by_columns = a.row_stride == 1 && a.column_stride >= std::max<int64_t>(1, a.rows);
  const bool is_by_rows = a.column_stride == 1 && a.row_stride >= std::max<int64_t>(1, a.columns);
  const int64_t leading = is_by_columns ? a.column_stride : a.row_stride;
  if (!has_gemv || !(is_by_columns || is_by_rows) || a.rows <= 1 || a.columns <= 1 || stride < 1 || !fits(a.rows) ||
      !fits(a.columns) || !fits(leading) || !fits(stride)) {
    return std::nullopt;
  }
  VectorProduct plan;
  plan.dtype_ = dtype;
  plan.is_transposed_ = !is_by_columns;
  plan.rows_ = static_cast<int>(is_by_columns ? a.rows : a.columns);
  plan.columns_ = static_cast<int>(is_by_columns ? a.columns : a.rows);
  plan.leading_ = static_cast<int>(leading);
  plan.stride_ = static_cast<int>(stride);
  return plan;
}

template <typename T>
void VectorProduct::call(const void* a, const void* x, void* result) const {
  constexpr T kOne = 1;
  constexpr T kZero = 0;
  constexpr int kStride = 1;
  blas_gemv<T>()(
      is_transposed_ ? "t" : "n",
      &rows_,
      &columns_,
      &kOne,
      static_cast<const T*>(a),
      &leading_,
      static_cast<const T*>(x),
      &stride_,
      &kZero,
      static_cast<T*>(result),
      &kStride);
}

void VectorProduct::run(const void* a, const void* x, void* result) const {
  dtype_ == c10::ScalarType::Float ? call<float>(a, x, result) : call<double>(a, x, result);
}

bool has_dot(c10::ScalarType dtype) {
  return (dtype == c10::ScalarType::Float && blas_dot<float>()) ||
         (dtype == c10::ScalarType::Double && blas_dot<double>());
}

void dot(
    c10::ScalarType dtype,
    int64_t size,
    const void* a,
    int64_t stride_a,
    const void* b,
    int64_t stride_b,
    void* result) {
  TORCH_INTERNAL_ASSERT(size == 1 || (size > 0 && fits(size) && fits(stride_a) && fits(stride_b)));
  dtype == c10::ScalarType::Float ? call_dot<float>(size, a, stride_a, b, stride_b, result)
                                  : call_dot<double>(size, a, stride_a, b, stride_b, result);
}

} // namespace lazyplug::kernels
