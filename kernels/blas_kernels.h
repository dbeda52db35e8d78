#pragma once

#include <cstdint>

namespace lazyplug::kernels {

// Of a product of matrices.
struct ProductSizes {
  int64_t rows;
  int64_t columns;
  int64_t inner;
  bool b_is_by_rows = true; // the second matrix; or else by columns
};

// How BLAS adds up a float32 product. Each sum is of blocks, of at most so many products, which are added up with fused
// multiply-adds, in order.
enum class BlasKernels : uint8_t {
  kOther,    // not so
  kBy192,    // MKL's for processors that are not Intel's; what is small, in other ways
  kAllBy192, // the same, what is small as well
  kBy384     // MKL's with AVX-512
};

constexpr int64_t longest_block(BlasKernels kernels) {
  return kernels == BlasKernels::kBy384 ? 384 : 192;
}

// Those of this process, as it is set up: asked of BLAS once, with a few products of random numbers.
BlasKernels blas_kernels();

// What is left to BLAS on every processor, so that nobody need ask which it is.
bool is_small(const ProductSizes& sizes);

// Whether kernels/gemm.h has the bits of BLAS for such a product, and takes less time. PyTorch's BLAS has no kernels
// with AVX-512 for processors that are not Intel's: on these, ours take half of its time, and on processors with AVX2
// less for small products. On Intel's, they take less for small ones, and where b has to be transposed.
bool has_gemm(BlasKernels kernels, const ProductSizes& sizes);

// Whether it still has these bits with this number of intra-op threads, each of which BLAS gives a part.
bool has_bits_of_blas(BlasKernels kernels, const ProductSizes& sizes, int num_threads);

} // namespace lazyplug::kernels
