#include "backend/native/deterministic.h"

#include <ATen/Context.h>
#include <ATen/native/TensorFactories.h>

namespace lazyplug::native {

bool fills_uninitialized_memory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

void fill_uninitialized(const at::Tensor& tensor) {
  at::Tensor same = tensor;
  at::native::fill_empty_deterministic_(same);
}

} // namespace lazyplug::native
