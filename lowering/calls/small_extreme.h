#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/DimVector.h>

#include <array>
#include <optional>

#include "kernels/extremes.h"
#include "lowering/ir/geometry.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// A search of a small tensor without gaps: argmax and argmin, max and min of all elements or over a dimension, amax and
// amin of rows, and for booleans, all and any. Without what PyTorch's kernel asks and prepares each time, which takes
// longer than to search. It has the bits of PyTorch's.
class SmallExtreme {
 public:
  enum class Returns : uint8_t { kPlaces, kValues, kValuesAndPlaces, kTruth };
  struct Op {
    const char* name;
    Returns returns;
    bool is_least; // of truths: all are true if the least one is
  };
  // Null if it is none of these.
  static const Op* find(const OpInfo& op);

  // `dim` is a dimension, a list of one, or none, for all. Nothing if there is no such kernel, or the dimension is
  // wrong.
  static std::optional<SmallExtreme> plan(const Op& op, const Geometry& input, const c10::IValue& dim);

  // Of all results.
  c10::DimVector result_sizes(c10::IntArrayRef sizes, bool keeps_dims) const;
  int64_t result_numel() const {
    return search_.outer * search_.inner;
  }
  // New CPU tensors: the second is that of places, if there are values, too. The first is undefined if it would be a
  // NaN, or a zero of which PyTorch alone knows the sign.
  std::array<at::Tensor, 2> run(c10::IntArrayRef result_sizes, const void* from) const;

 private:
  SmallExtreme(Returns returns, const kernels::Search& search, c10::ScalarType dtype)
      : returns_(returns), search_(search), dtype_(dtype) {}

  Returns returns_;
  kernels::Search search_;
  c10::ScalarType dtype_;
  std::optional<int64_t> dim_; // that is searched; nothing: all are
};

} // namespace lazyplug
