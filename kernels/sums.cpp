#include "kernels/sums.h"

#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

Opcode opcode_of(Summed makes) {
  switch (makes) {
    case Summed::kSum:
      return Opcode::kRowSum;
    case Summed::kMean:
      return Opcode::kRowMean;
    case Summed::kNorm:
      return Opcode::kRowNorm;
  }
  __builtin_unreachable();
}

template <typename T>
void sum_rows(const Reduction& reduction, const T* from, T* out) {
  const auto opcode = static_cast<size_t>(opcode_of(reduction.makes));
  loops<T>().of_rows[opcode](reduction.outer, reduction.reduced, out, from, from, from, 0, 0);
}

template <typename T>
void sum_columns(const Reduction& reduction, const T* from, T* out) {
  loops<T>().sum_columns(reduction.reduced, reduction.inner, from, out);
  for (int64_t i = 0; i < reduction.inner && reduction.makes == Summed::kMean; ++i) {
    out[i] /= static_cast<T>(reduction.reduced);
  }
}

template <typename T>
void reduce(const Reduction& reduction, const void* from, void* out) {
  const auto* elements = static_cast<const T*>(from);
  reduction.inner == 1 ? sum_rows<T>(reduction, elements, static_cast<T*>(out))
                       : sum_columns<T>(reduction, elements, static_cast<T*>(out));
}

} // namespace

void reduce(const Reduction& reduction, c10::ScalarType dtype, const void* from, void* out) {
  dtype == c10::ScalarType::Float ? reduce<float>(reduction, from, out) : reduce<double>(reduction, from, out);
}

} // namespace lazyplug::kernels
