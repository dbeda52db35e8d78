#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <vector>

#include "kernels/sums.h"
#include "lowering/ir/geometry.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// Whether an op is aten::sum or aten::mean, over all dimensions or some; and whether it is a mean.
bool is_sum(const OpInfo& op);
bool is_mean(const OpInfo& op);

// A sum or a mean of a small tensor without gaps, over all dimensions or some, without what PyTorch's kernel asks and
// prepares each time, which takes longer than to add up. It has the bits of PyTorch's.
class SmallSum {
 public:
  // `dims` is a list of dimensions, or none, for all. Nothing if there is no such kernel, or the dimensions are wrong.
  static std::optional<SmallSum> plan(const Geometry& input, const c10::IValue& dims);

  c10::DimVector result_sizes(c10::IntArrayRef sizes, bool keeps_dims) const;
  int64_t result_numel() const {
    return reduction_.outer * reduction_.inner;
  }
  // Both without gaps.
  void run(bool is_mean, const void* from, void* to) const;

 private:
  SmallSum() = default;

  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  std::vector<bool> reduced_; // by dimension
  kernels::Reduction reduction_{1, 1, 1, false};
};

} // namespace lazyplug
