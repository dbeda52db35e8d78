#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "kernels/gemm.h"

namespace lazyplug::kernels {

// How a matrix lies; strides in elements.
struct Matrix {
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;
};

// A product of two matrices by the BLAS that PyTorch has been built with, which is called as PyTorch's own kernel calls
// it, hence with its bits and its threads; or, with the same bits, by kernels/gemm.h.
class Product {
 public:
  // Nothing if PyTorch would copy a matrix first, or there is nothing to compute, or no such BLAS. For float32 and
  // float64.
  static std::optional<Product> plan(c10::ScalarType dtype, const Matrix& a, const Matrix& b, const Matrix& result);
  // By BLAS always.
  static std::optional<Product>
  plan_blas(c10::ScalarType dtype, const Matrix& a, const Matrix& b, const Matrix& result);

  // result = alpha * a * b + beta * result. If beta is 0, what stands in the result is not read.
  void run(double alpha, const void* a, const void* b, double beta, void* result) const;

  // Whether kernels/gemm.h may compute it, in less time than BLAS, also if it is large.
  bool has_gemm() const {
    return has_gemm_;
  }
  // Whether it does so with as many threads as there are now.
  bool uses_gemm() const;
  // If it does: result = start + a * b, where the rows of `start` have no gaps. A stride of 0: all of them are one.
  void run_from(const void* start, int64_t start_row, const void* a, const void* b, void* result) const;

 private:
  // As BLAS takes it: column by column, or transposed.
  struct Operand {
    bool is_transposed;
    int leading; // the stride of its columns, or rows
  };

  static std::optional<Operand> operand(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
  template <typename T>
  void call(T alpha, const void* a, const void* b, T beta, void* result) const;

  c10::ScalarType dtype_ = c10::ScalarType::Float;
  bool is_swapped_ = false; // the transposed result is computed, of the transposed matrices
  int rows_ = 0;            // of what is computed
  int columns_ = 0;
  int inner_ = 0;
  Operand first_{};
  Operand second_{};
  int leading_ = 0; // of the result
  bool has_gemm_ = false;
  Gemm gemm_{};
};

// A product of a matrix and a vector, of float32 or float64, by the BLAS that PyTorch's kernel calls. Nothing if
// PyTorch would copy the matrix first, or not call BLAS.
class VectorProduct {
 public:
  static std::optional<VectorProduct> plan(c10::ScalarType dtype, const Matrix& a, int64_t stride);

  c10::ScalarType dtype() const {
    return dtype_;
  }
  // Of the result, which lies without gaps.
  int64_t size() const {
    return is_transposed_ ? columns_ : rows_;
  }
  void run(const void* a, const void* x, void* result) const;

 private:
  template <typename T>
  void call(const void* a, const void* x, void* result) const;

  c10::ScalarType dtype_ = c10::ScalarType::Float;
  bool is_transposed_ = false;
  int rows_ = 0; // of the matrix as BLAS takes it, by columns
  int columns_ = 0;
  int leading_ = 0;
  int stride_ = 1;
};

// The inner product of two vectors of at least one element, float32 or float64, by the BLAS that PyTorch's kernel
// calls.
bool has_dot(c10::ScalarType dtype);
void dot(
    c10::ScalarType dtype,
    int64_t size,
    const void* a,
    int64_t stride_a,
    const void* b,
    int64_t stride_b,
    void* result);

} // namespace lazyplug::kernels
