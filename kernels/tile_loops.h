#pragma once

#include <algorithm>
#include <iterator>

#include "kernels/batch_norm.h"
#include "kernels/convolution_plan.h"
#include "kernels/filter_gradient_plan.h"
#include "kernels/gemm.h"
#include "kernels/norm_gradient.h"
#include "kernels/pool.h"
#include "kernels/random_fill.h"
#include "kernels/row_adds.h"
#include "kernels/running_sum.h"
#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// One instruction on n elements.
template <typename T>
using Loop = void (*)(int64_t n, T* out, const T* a, const T* b, const T* c, T s, T t);

// One that is about rows, on as many rows of n elements. Slots may be the same.
template <typename T>
using RowLoop = void (*)(int64_t num_rows, int64_t n, T* out, const T* a, const T* b, const T* c, T s, T t);

// What memory may hold that a program reads, which computes in its own dtype.
constexpr c10::ScalarType kMemoryDtypes[] = {
    c10::ScalarType::Bool,
    c10::ScalarType::Byte,
    c10::ScalarType::Char,
    c10::ScalarType::Short,
    c10::ScalarType::Int,
    c10::ScalarType::Long,
    c10::ScalarType::Float,
    c10::ScalarType::Double,
    c10::ScalarType::Half,
    c10::ScalarType::BFloat16};

// Its place among kMemoryDtypes; their number, if it is none.
inline size_t memory_dtype(c10::ScalarType dtype) {
  return std::find(std::begin(kMemoryDtypes), std::end(kMemoryDtypes), dtype) - std::begin(kMemoryDtypes);
}

// Reads n elements of a dtype, `stride` apart, and casts them as the CPU does.
template <typename T>
using Load = void (*)(int64_t n, T* out, const void* from, int64_t stride);

// Writes n elements of a dtype that has them all, or their truth if that is Bool.
template <typename T>
using Store = void (*)(int64_t n, void* to, const T* from);

// Random numbers are made in blocks of so many.
constexpr int kRandomBlock = 64;

template <typename T>
struct Loops {
  Loop<T> of[kNumOpcodes] = {};         // null: it is about rows, or not for this dtype
  RowLoop<T> of_rows[kNumOpcodes] = {}; // null: likewise
  Load<T> loads[std::size(kMemoryDtypes)] = {};
  Store<T> stores[std::size(kMemoryDtypes)] = {}; // null: programs do not make this dtype in another one
  // Of a matrix without gaps, row by row, of more than one row and column.
  void (*sum_columns)(int64_t rows, int64_t columns, const T* from, T* out) = nullptr;
  // All that has been added, at least RunningSum::kMinElements, as a row is added up.
  void (*add_to_sum)(RunningSum<T>& sum, int64_t n, const T* from) = nullptr;
  T (*finish_sum)(const RunningSum<T>& sum) = nullptr;
  // To the table's rows from `begin` to `end`. Null: not for this dtype.
  void (*add_rows)(const RowAdds<T>& adds, int64_t begin, int64_t end) = nullptr;
  // Of the rows from `begin` to `end`; adds their parts of the sums. Null: not for this dtype.
  void (*norm_gradient)(const NormGradient& norm, int64_t begin, int64_t end, float* of_weight, float* of_bias) =
      nullptr;
  // The blocks from `begin` to `end`, whole ones. Null: not for this dtype.
  void (*fill_random)(const RandomFill& fill, int64_t begin, int64_t end, void* out) = nullptr;
  void (*fill_random_long)(const RandomFill& fill, int64_t begin, int64_t end, void* out) = nullptr;
  void (*fill_random_bool)(const RandomFill& fill, int64_t begin, int64_t end, void* out) = nullptr;
  // Rows of windows, of all planes. Null: not for this dtype.
  void (
      *find_largest)(const Pool& pool, int64_t begin, int64_t end, const float* from, float* values, int64_t* places) =
      nullptr;
  void (*find_mean)(const Pool& pool, bool counts_padding, int64_t begin, int64_t end, const float* from, float* to) =
      nullptr;
  int num_lanes = 0; // of a vector
  // Null: there are none for this target and dtype.
  void (*gemm)(const Gemm& gemm, const GemmBlock& block) = nullptr;
  void (*find_moments)(const BatchNorm& norm, int64_t first_channel, int64_t end_channel) = nullptr;
  void (*normalize_planes)(const BatchNorm& norm, int64_t begin, int64_t end) = nullptr;
  // These two return whether all filters, or gradients, are finite.
  bool (*pack_filters)(const Convolution& convolution, int64_t tile, int64_t first_channel, float* packed) = nullptr;
  bool (*sum_up_filters)(const FilterGradientPlan& plan, const FilterGradientBlock& block) = nullptr;
  void (*convolve)(const Convolution& convolution, const ConvolutionBlock& block, const float* packed, float* memory) =
      nullptr;
};

// Those for the processor, and the setting ATEN_CPU_CAPABILITY.
template <typename T>
const Loops<T>& loops();

// tile_loops.inc.cpp is compiled once for each; those of x86-64 are not there on other processors.
namespace default_target {
template <typename T>
const Loops<T>& loops();
}
namespace avx2 {
template <typename T>
const Loops<T>& loops();
}
namespace avx512 {
template <typename T>
const Loops<T>& loops();
}

} // namespace lazyplug::kernels
