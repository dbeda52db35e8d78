#include "kernels/sums.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>

#include <cstring>

#include "kernels/tile_loops.h"
#include "kernels/trial_numbers.h"

namespace lazyplug::kernels {
namespace {

template <typename T>
void sum_rows(const Reduction& reduction, const T* from, T* out) {
  loops<T>()
      .of_rows[static_cast<size_t>(reduction.makes)](reduction.outer, reduction.reduced, out, from, from, from, 0, 0);
}

template <typename T>
void sum_columns(const Reduction& reduction, const T* from, T* out) {
  loops<T>().sum_columns(reduction.reduced, reduction.inner, from, out);
  for (int64_t i = 0; i < reduction.inner && reduction.makes == Opcode::kRowMean; ++i) {
    out[i] /= static_cast<T>(reduction.reduced);
  }
}

template <typename T>
void reduce(const Reduction& reduction, const void* from, void* out) {
  const auto* elements = static_cast<const T*>(from);
  reduction.inner == 1 ? sum_rows<T>(reduction, elements, static_cast<T*>(out))
                       : sum_columns<T>(reduction, elements, static_cast<T*>(out));
}

bool try_norms() {
  constexpr int64_t kRows = 40;
  bool is_same = true;
  uint32_t state = 1;
  for (const int64_t n : {5, 8, 31, 500, 1004}) {
    const at::Tensor numbers = at::detail::empty_cpu({kRows, n}, at::kFloat);
    draw_for_trial(numbers.mutable_data_ptr<float>(), numbers.numel(), state);
    float norms[kRows];
    sum_rows<float>({kRows, n, 1, Opcode::kRowNorm}, numbers.const_data_ptr<float>(), norms);
    const at::Tensor expected = at::cpu::linalg_vector_norm(numbers, 2, c10::IntArrayRef{1});
    is_same = is_same && std::memcmp(norms, expected.const_data_ptr<float>(), sizeof(norms)) == 0;
  }
  return is_same;
}

} // namespace

bool has_norms_of_pytorch() {
  static const bool result = try_norms();
  return result;
}

void reduce(const Reduction& reduction, c10::ScalarType dtype, const void* from, void* out) {
  dtype == c10::ScalarType::Float ? reduce<float>(reduction, from, out) : reduce<double>(reduction, from, out);
}

} // namespace lazyplug::kernels
