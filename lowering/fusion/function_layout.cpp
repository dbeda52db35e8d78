#include "lowering/fusion/function_layout.h"

namespace lazyplug {

bool FunctionLayout::begin(const Tensor& tensor) {
  has_begun_ = true;
  result_ = Geometry::contiguous(tensor.dtype, tensor.sizes);
  if (tensor.is_dense) {
    result_.strides = c10::DimVector(tensor.strides);
  }
  return takes_dtype(function_, tensor.dtype) && takes_rows(function_, tensor.sizes, tensor.strides);
}

bool FunctionLayout::add(const Tensor& tensor) {
  if (!has_begun_ && !begin(tensor)) {
    return false;
  }
  if (tensor.dtype != result_.dtype) {
    return false;
  }
  return tensor.is_dense ? result_.same_memory(tensor.sizes, tensor.strides)
                         : result_.sizes == tensor.sizes && result_.is_contiguous() &&
                               takes_part(function_, tensor.sizes, tensor.strides);
}

bool FunctionLayout::add_row(const Tensor& row) {
  ++num_rows_;
  return !lacks_row_ && row.dtype == result_.dtype && row.sizes.size() == 1 && row.sizes[0] == result_.sizes.back() &&
         row.strides[0] == 1;
}

} // namespace lazyplug
