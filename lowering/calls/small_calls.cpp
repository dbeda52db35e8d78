#include "lowering/calls/small_calls.h"

#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {

const c10::TensorImpl* SmallCalls::plain_tensor(const c10::IValue& argument) {
  if (!argument.isTensor()) {
    return nullptr;
  }
  const auto* tensor = argument.unsafeToTensorImpl();
  const bool is_plain =
      tensor->has_storage() && tensor->layout() == at::kStrided && !tensor->is_conj() && !tensor->is_neg();
  return is_plain ? tensor : nullptr;
}

at::Tensor SmallCalls::run(c10::ArrayRef<c10::IValue> arguments, MemoryOf memory_of) const {
  return computes_functions() ? compute(arguments, memory_of) : at::Tensor();
}

} // namespace lazyplug
