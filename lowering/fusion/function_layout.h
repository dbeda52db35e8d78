#pragma once

#include "lowering/fusion/pointwise_ops.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {

// Whether a call of a function of this package is computed here, by how its tensors lie: the rule is that of
// pointwise_ops.h, for calls in graphs and for those at once.
class FunctionLayout {
 public:
  struct Tensor {
    c10::ScalarType dtype;
    c10::IntArrayRef sizes;
    c10::IntArrayRef strides;
    bool is_dense; // without gaps and overlaps
  };

  explicit FunctionLayout(const PointwiseOp& function) : function_(function) {}

  // The next one that it computes with. False: the call is not computed here.
  bool add(const Tensor& tensor);
  // Beside them, of layer norm, what is one row: a weight, then a bias, if there is a weight.
  bool add_row(const Tensor& row);
  void add_missing_row() {
    lacks_row_ = true;
  }

  // Of a function that does not sum up rows: as the first tensor, without gaps.
  const Geometry& result() const {
    return result_;
  }
  size_t num_rows() const {
    return num_rows_;
  }

 private:
  bool begin(const Tensor& tensor);

  const PointwiseOp& function_;
  Geometry result_;
  bool has_begun_ = false;
  bool lacks_row_ = false;
  size_t num_rows_ = 0;
};

} // namespace lazyplug
