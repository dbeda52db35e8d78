#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

#include <optional>

#include "kernels/pointwise.h"

namespace lazyplug {

// How the tensors of a small pointwise call lie that do not lie alike: some are broadcast, or have gaps.
class SmallSpread {
 public:
  // Of a call that reads these, and writes the first of its arguments, or has a new result, which is contiguous then.
  // Nothing if it is no such call, or if PyTorch's kernels would arrange the result otherwise.
  static std::optional<SmallSpread>
  plan(c10::ArrayRef<const c10::TensorImpl*> inputs, const c10::TensorImpl* written, int64_t max_elements);

  c10::IntArrayRef sizes() const { // of a new result
    return sizes_;
  }
  // Whether an input is the same for all of some dimension.
  bool is_broadcast(size_t input) const;

  // Whether a program may be given this dtype beside its own.
  static bool can_read(c10::ScalarType dtype);

  // `memory` is that of the inputs, which may be of other dtypes than the program's, and of the result or of what is
  // written, which may be of bools. Numbers as the program takes them.
  void run(const kernels::Program& program, c10::ArrayRef<kernels::Memory> memory, const double* numbers) const;

 private:
  SmallSpread() = default;
  bool add(const c10::TensorImpl& tensor);
  bool sort_dims();
  template <typename T>
  void run_in(const kernels::Program& program, c10::ArrayRef<kernels::Memory> memory, const double* numbers) const;

  int64_t num_elements_ = 1;
  c10::DimVector sizes_;
  c10::SmallVector<c10::DimVector, 4> strides_; // of the inputs, and behind them of what is written
};

} // namespace lazyplug
