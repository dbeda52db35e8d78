#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

namespace lazyplug {

// How calls of one op are computed that run at once, without a graph, if their tensors are small: by the kernels that a
// graph of the one call would have, without one. What PyTorch's kernels ask and prepare takes longer than to compute.
class SmallCalls {
 public:
  virtual ~SmallCalls() = default;

  // Where a tensor's elements are, to be read, or also written; null: nobody knows. They must stay there during the
  // call.
  using MemoryOf = c10::function_ref<void*(const c10::TensorImpl& tensor, bool written)>;

  // The result, as a new CPU tensor, or for an op that writes an argument, that argument. Undefined, and nothing
  // done, if this is none of these calls, or the flags do not ask for it.
  at::Tensor run(c10::ArrayRef<c10::IValue> arguments, MemoryOf memory_of) const;

 protected:
  // Larger ones are PyTorch's, as they are where they stand alone in a graph.
  static constexpr int64_t kMaxElements = 4'096;

  SmallCalls() = default;

 private:
  virtual at::Tensor compute(c10::ArrayRef<c10::IValue> arguments, MemoryOf memory_of) const = 0;
};

} // namespace lazyplug
