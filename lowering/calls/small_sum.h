#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <vector>

#include "kernels/sums.h"
#include "lowering/ir/geometry.h"
#include "lowering/ir/op_info.h"

namespace lazyplug {

// A sum, a mean or a norm of a small tensor without gaps, over all dimensions or some, without what PyTorch's kernel
// asks and prepares each time, which takes longer than to add up. It has the bits of PyTorch's.
class SmallSum {
 public:
  struct Op {
    const char* name;
    kernels::Opcode makes;
    size_t dims; // which argument names dimensions; 0: none does
  };
  // Null if the op is none of these.
  static const Op* find(const OpInfo& op);
  // Whether a call makes what the op's row says: norms are of many orders.
  static bool makes_it(const Op& op, const c10::IValue& second_argument);

  // `dims` is a list of dimensions, or none, for all. Nothing if there is no such kernel, or the dimensions are wrong.
  static std::optional<SmallSum> plan(kernels::Opcode makes, const Geometry& input, const c10::IValue& dims);

  c10::DimVector result_sizes(c10::IntArrayRef sizes, bool keeps_dims) const;
  int64_t result_numel() const {
    return reduction_.outer * reduction_.inner;
  }
  // Both without gaps.
  void run(const void* from, void* to) const;

 private:
  SmallSum() = default;

  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  std::vector<bool> reduced_; // by dimension
  kernels::Reduction reduction_{1, 1, 1, kernels::Opcode::kRowSum};
};

} // namespace lazyplug
